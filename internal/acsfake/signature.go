package acsfake

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"sort"
	"strings"
)

// gateway does what the service's gateway does before a request reaches it: throttling,
// and the signature (ROA style, HMAC-SHA1).
func (s *Server) gateway(r *request) *gatewayError {
	if s.use(&s.knobs.Throttle) {
		return &gatewayError{http.StatusTooManyRequests, "Throttling.User", "Request was denied due to user flow control."}
	}
	if s.use(&s.knobs.Unavailable) {
		return &gatewayError{http.StatusServiceUnavailable, "ServiceUnavailable", "The request has failed due to a temporary failure of the server."}
	}
	credentials, ok := strings.CutPrefix(r.Header.Get("Authorization"), "acs ")
	id, signature, found := strings.Cut(credentials, ":")
	if !ok || !found {
		return &gatewayError{http.StatusBadRequest, "IncompleteSignature", "The request signature does not conform to Aliyun standards: the Authorization header must be \"acs <AccessKeyId>:<Signature>\"."}
	}
	if id != s.opts.AccessKeyID {
		return &gatewayError{http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found."}
	}
	sum := md5.Sum(r.body)
	if r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
		return &gatewayError{http.StatusBadRequest, "SignatureDoesNotMatch", "Content-MD5 does not match the body."}
	}
	signed := canonical(r.Request)
	mac := hmac.New(sha1.New, []byte(s.opts.AccessKeySecret))
	mac.Write([]byte(signed))
	if !hmac.Equal([]byte(signature), []byte(base64.StdEncoding.EncodeToString(mac.Sum(nil)))) {
		return &gatewayError{http.StatusBadRequest, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:" + signed}
	}
	date, err := http.ParseTime(r.Header.Get("Date"))
	if skew := s.clock.Now().Sub(date).Abs(); err != nil || skew > assumeClockSkew {
		return &gatewayError{http.StatusBadRequest, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."}
	}
	return nil
}

// canonical is the text that the client must have signed.
func canonical(r *http.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Method)
	for _, name := range []string{"Accept", "Content-MD5", "Content-Type", "Date"} {
		if value := r.Header.Get(name); value != "" {
			fmt.Fprintf(&b, "%s\n", value)
		}
	}
	var names []string
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-acs-") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s:%s\n", name, r.Header.Get(name))
	}
	b.WriteString(r.URL.Path)
	query := r.URL.Query()
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for i, key := range keys {
		separator := "&"
		if i == 0 {
			separator = "?"
		}
		b.WriteString(separator + key)
		if value := query.Get(key); value != "" {
			b.WriteString("=" + value)
		}
	}
	return b.String()
}

// requestID is derived from the request, so that transcripts repeat.
func requestID(r *http.Request, body []byte) string {
	return strings.ToUpper(digest(16, r.Method, r.URL.RequestURI(), string(body)))
}

// digest is n hexadecimal digits that depend on the parts.
func digest(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}
