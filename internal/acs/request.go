package acs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
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
	r, err := c.request(ctx, req, body)
	if err != nil {
		return fmt.Errorf("%s: %w", req.operation, err)
	}
	var answer []byte
	var failure error
	sender := retryablehttp.Client{
		HTTPClient: c.http, RetryMax: tries - 1, RetryWaitMin: c.retryDelay, Backoff: backoff,
		CheckRetry: func(ctx context.Context, response *http.Response, err error) (bool, error) {
			answer, failure = c.read(req.operation, response, err)
			return failure != nil && repeatable(req.method, failure) && ctx.Err() == nil, nil
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	// The last failure goes before the interruption of the wait for the next try.
	if _, err := sender.Do(r); failure != nil || err != nil {
		return cmp.Or(failure, err)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s: %w of %s: %w", req.operation, errUnreadable, c.Endpoint(), err)
	}
	return nil
}

func encode(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	return json.Marshal(body)
}

// repeatable reports whether sending the request again cannot do harm.
func repeatable(method string, err error) bool {
	return IsThrottled(err) || method != http.MethodPost && temporary(err)
}

// temporary reports whether the same request may be answered later.
func temporary(err error) bool { return IsThrottled(err) || serverFault(err) || isTransport(err) }

// backoff is the wait before a repetition: doubled each time, and the second half of it random.
func backoff(first, _ time.Duration, repetition int, _ *http.Response) time.Duration {
	delay := first << repetition
	return delay/2 + rand.N(delay/2+1)
}

// request makes a request, which is signed when it is sent.
func (c *Client) request(ctx context.Context, req call, body []byte) (*retryablehttp.Request, error) {
	u := *c.base
	u.Path, u.RawQuery = req.path, req.query.Encode()
	var content any // nil for none
	if body != nil {
		content = body
	}
	r, err := retryablehttp.NewRequestWithContext(ctx, req.method, u.String(), content)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", c.userAgent)
	r.Header.Set("x-acs-version", apiVersion)
	r.Header.Set("x-acs-action", req.operation)
	r.Header.Set(contentHash, hash(body))
	return r, nil
}

// read returns the body of the answer to one try, or how the try failed.
func (c *Client) read(operation string, response *http.Response, err error) ([]byte, error) {
	var unsent *unsentError
	if errors.As(err, &unsent) { // without the address that the request would have gone to
		return nil, fmt.Errorf("%s: %w", operation, unsent)
	}
	if err != nil {
		return nil, c.noAnswer(operation, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, c.noAnswer(operation, err)
	}
	if response.StatusCode >= 300 {
		e := parseError(response.StatusCode, answer)
		e.Operation, e.Message, e.Hint = operation, brief(withoutToken(e.Message, response.Request)), c.hint(e.Code)
		return nil, e
	}
	return answer, nil
}
