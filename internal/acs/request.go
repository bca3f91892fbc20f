package acs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// tries is how often a request is sent at most.
const tries = 4

// maxBody limits an answer, in bytes.
const maxBody = 16 << 20

// call is one operation of the API.
type call struct {
	operation string
	method    string
	path      string
	query     url.Values
	// body is sent as JSON when it is not nil.
	body any
}

// do sends a request, repeats it where that is safe, and decodes the answer into out
// unless that is nil.
func (c *Client) do(ctx context.Context, req call, out any) error {
	body, err := encode(req.body)
	if err != nil {
		return fmt.Errorf("%s: encode request: %w", req.operation, err)
	}
	for try, delay := 1, c.retryDelay; ; try, delay = try+1, delay*2 {
		answer, err := c.send(ctx, req, body)
		if err == nil {
			if out == nil || len(answer) == 0 {
				return nil
			}
			if err := json.Unmarshal(answer, out); err != nil {
				return fmt.Errorf("%s: decode answer of %s: %w", req.operation, c.Endpoint(), err)
			}
			return nil
		}
		if try == tries || !repeatable(req.method, err) || ctx.Err() != nil {
			return err
		}
		if pause(ctx, delay/2+rand.N(delay/2+1)) != nil {
			return err
		}
	}
}

func encode(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	return json.Marshal(body)
}

// repeatable reports whether sending the request again cannot do harm.
func repeatable(method string, err error) bool {
	if IsThrottled(err) {
		return true
	}
	return method != http.MethodPost && (serverFault(err) || isTransport(err))
}

// pause waits for d or the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// send sends a request once and returns the body of the answer.
func (c *Client) send(ctx context.Context, req call, body []byte) ([]byte, error) {
	u := *c.base
	u.Path, u.RawQuery = req.path, req.query.Encode()
	r, err := http.NewRequestWithContext(ctx, req.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.operation, err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", c.userAgent)
	r.Header.Set("x-acs-version", apiVersion)
	r.Header.Set("x-acs-action", req.operation)
	c.credentials.sign(r, body, time.Now())

	response, err := c.http.Do(r)
	if err != nil {
		return nil, &transportError{operation: req.operation, endpoint: c.Endpoint(), err: err}
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, &transportError{operation: req.operation, endpoint: c.Endpoint(), err: err}
	}
	if response.StatusCode >= 300 {
		e := parseError(response.StatusCode, answer)
		e.Operation, e.Message, e.Hint = req.operation, brief(c.credentials.redact(e.Message)), c.hint(e.Code)
		return nil, e
	}
	return answer, nil
}
