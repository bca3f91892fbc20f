package acs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/utils"
	"github.com/alibabacloud-go/tea/dara"
)

// CredentialsSource tells as whom the next request is sent. String says where the
// credentials come from, "the access key LTAI… and its secret".
type CredentialsSource interface {
	// Get returns credentials that are valid now, at the latest when the context ends.
	Get(context.Context) (Credentials, error)
	String() string
}

// Credentials are an access key, with a security token when it is a temporary one. They
// are a source that always gives themselves. Printing them shows only the ID.
type Credentials struct {
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
}

// Get returns the credentials.
func (c Credentials) Get(context.Context) (Credentials, error) { return c, nil }

// String hides the secret parts.
func (c Credentials) String() string { return "the access key " + c.AccessKeyID + " and its secret" }

// GoString hides the secret parts.
func (c Credentials) GoString() string { return c.String() }

// signatureAlgorithm is the newest one of the service (Alibaba Cloud: "Request syntax and signature method V3").
const signatureAlgorithm = "ACS3-HMAC-SHA256"

const (
	contentHash   = "x-acs-content-sha256"
	securityToken = "x-acs-security-token"
)

// signer signs each try of a request, with the credentials of that moment, and sends it.
type signer struct {
	credentials CredentialsSource
	send        http.RoundTripper
}

// RoundTrip sends the request, or returns an [unsentError] when there are no credentials.
func (s signer) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := s.credentials.Get(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &unsentError{err}
	}
	r = r.Clone(r.Context())
	c.sign(r, time.Now(), rand.Text())
	return s.send.RoundTrip(r)
}

// sign sets the headers of the signature; the hash of the body is set already.
func (c Credentials) sign(r *http.Request, now time.Time, nonce string) {
	r.Header.Set("x-acs-date", now.UTC().Format(time.RFC3339))
	r.Header.Set("x-acs-signature-nonce", nonce)
	if c.SecurityToken != "" {
		r.Header.Set(securityToken, c.SecurityToken)
	}
	headers := map[string]*string{"host": dara.String(r.Host)}
	for name := range r.Header {
		headers[strings.ToLower(name)] = dara.String(r.Header.Get(name))
	}
	query := map[string]*string{}
	for key, values := range r.URL.Query() {
		query[key] = dara.String(values[0])
	}
	signed := dara.Request{Method: dara.String(r.Method), Pathname: dara.String(r.URL.EscapedPath()), Headers: headers, Query: query}
	r.Header.Set("Authorization", dara.StringValue(openapi.GetAuthorization(&signed, dara.String(signatureAlgorithm),
		headers[contentHash], dara.String(c.AccessKeyID), dara.String(c.AccessKeySecret))))
}

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// unsentError is a request that was not sent, because there are no credentials to sign it with.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }

func (e *unsentError) Unwrap() error { return e.err }
