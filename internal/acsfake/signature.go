package acsfake

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// gateway does what the service's gateway does before a request reaches it: throttling,
// and the signature.
func (s *Server) gateway(r *request) *gatewayError {
	if s.use(&s.knobs.Throttle) {
		return &gatewayError{http.StatusTooManyRequests, "Throttling.User", "Request was denied due to user flow control."}
	}
	if s.use(&s.knobs.Unavailable) {
		return &gatewayError{http.StatusServiceUnavailable, "ServiceUnavailable", "The request has failed due to a temporary failure of the server."}
	}
	return s.authenticate(r)
}

// signature is what a request says of its signature, and what of the request it covers.
type signature struct {
	// keyID is the access key's ID, given the signature itself.
	keyID, given string
	// text is what was to be signed, mac makes the signature of it.
	text string
	mac  func(text string) string
	// date is when the request was signed, nonce what no other request has, "" for none.
	date  time.Time
	nonce string
}

// authenticate finds out whether the request is signed with the emulator's access key, in either of
// the service's two ways.
func (s *Server) authenticate(r *request) *gatewayError {
	scheme, parameters, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	var given signature
	var refused *gatewayError
	switch scheme {
	case "acs":
		given, refused = s.signatureV1(r, parameters)
	case algorithmV3:
		given, refused = s.signatureV3(r, parameters)
	default:
		refused = incomplete("the Authorization header must be \"acs <AccessKeyId>:<Signature>\" or \"" + algorithmV3 + " Credential=...,SignedHeaders=...,Signature=...\"")
	}
	switch {
	case refused != nil:
		return refused
	case given.keyID != s.opts.AccessKeyID:
		return &gatewayError{http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found."}
	case !hmac.Equal([]byte(given.given), []byte(given.mac(given.text))):
		return &gatewayError{http.StatusBadRequest, "SignatureDoesNotMatch", "Specified signature is not matched with our calculation. server string to sign is:" + given.text}
	case s.clock.Now().Sub(given.date).Abs() > assumeClockSkew:
		return &gatewayError{http.StatusBadRequest, "InvalidTimeStamp.Expired", "Specified time stamp or date value is expired."}
	case r.Header.Get("x-acs-security-token") != s.opts.SecurityToken:
		return &gatewayError{http.StatusBadRequest, "InvalidSecurityToken.MismatchWithAccessKey", "Specified SecurityToken mismatch with the AccessKey."}
	case given.nonce != "" && !s.first(given.nonce):
		return &gatewayError{http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already."}
	}
	return nil
}

func incomplete(why string) *gatewayError {
	return &gatewayError{http.StatusBadRequest, "IncompleteSignature", "The request signature does not conform to Aliyun standards: " + why + "."}
}

// first notes a nonce, and reports whether it is new. A nonce is forgotten when a request
// with it would be too old anyway.
func (s *Server) first(nonce string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.nonces, func(_ string, at time.Time) bool { return now.Sub(at) > 2*assumeClockSkew })
	_, again := s.nonces[nonce]
	s.nonces[nonce] = now
	return !again
}

// signatureV1 reads the signature of ROA style, by HMAC-SHA1 or HMAC-SHA256 ("Request structure and
// signature of ROA-style APIs").
func (s *Server) signatureV1(r *request, parameters string) (signature, *gatewayError) {
	id, given, found := strings.Cut(parameters, ":")
	if !found {
		return signature{}, incomplete("the Authorization header must be \"acs <AccessKeyId>:<Signature>\"")
	}
	sum := md5.Sum(r.body)
	if got := r.Header.Get("Content-MD5"); got != "" && got != base64.StdEncoding.EncodeToString(sum[:]) {
		return signature{}, &gatewayError{http.StatusBadRequest, "SignatureDoesNotMatch", "Content-MD5 does not match the body."}
	}
	hash := sha1.New
	switch method := r.Header.Get("x-acs-signature-method"); method {
	case "HMAC-SHA1":
	case "HMAC-SHA256":
		hash = sha256.New
	default:
		return signature{}, &gatewayError{http.StatusBadRequest, "InvalidSignatureMethod", "Specified signature method is not valid: " + method + "."}
	}
	date, _ := http.ParseTime(r.Header.Get("Date")) // else long ago
	return signature{
		keyID: id, given: given, text: textV1(r.Request), date: date, nonce: r.Header.Get("x-acs-signature-nonce"),
		mac: func(text string) string {
			return base64.StdEncoding.EncodeToString(keyed(hash, s.opts.AccessKeySecret, text))
		},
	}, nil
}

func keyed(hash func() hash.Hash, secret, text string) []byte {
	mac := hmac.New(hash, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// textV1 is the text that a client must have signed by version 1: the method, four headers, all x-acs-
// headers sorted by name, and the path with the query sorted by key, its values unencoded.
func textV1(r *http.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Method)
	for _, name := range []string{"Accept", "Content-MD5", "Content-Type", "Date"} {
		fmt.Fprintf(&b, "%s\n", r.Header.Get(name))
	}
	for _, name := range headersOf(r) {
		fmt.Fprintf(&b, "%s:%s\n", name, r.Header.Get(name))
	}
	b.WriteString(r.URL.Path)
	query := r.URL.Query()
	separator := "?"
	for _, key := range slices.Sorted(maps.Keys(query)) {
		b.WriteString(separator + key)
		if value := query.Get(key); value != "" {
			b.WriteString("=" + value)
		}
		separator = "&"
	}
	return b.String()
}

// headersOf lists the x-acs- headers of a request, lower-case and sorted.
func headersOf(r *http.Request) []string {
	var names []string
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-acs-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const algorithmV3 = "ACS3-HMAC-SHA256"

// requiredV3 are the headers that a signature of version 3 must cover.
var requiredV3 = []string{"host", "x-acs-action", "x-acs-content-sha256", "x-acs-date", "x-acs-signature-nonce", "x-acs-version"}

// signatureV3 reads the signature of any style by version 3 ("Request syntax and signature method V3").
func (s *Server) signatureV3(r *request, parameters string) (signature, *gatewayError) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(parameters, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[key] = value
	}
	names := strings.Split(fields["SignedHeaders"], ";")
	if fields["Credential"] == "" || fields["Signature"] == "" || !slices.IsSorted(names) {
		return signature{}, incomplete("Credential, SignedHeaders in alphabetical order and Signature are needed")
	}
	for _, name := range slices.Concat(requiredV3, headersOf(r.Request)) {
		if !slices.Contains(names, name) {
			return signature{}, incomplete("the header " + name + " must be signed")
		}
	}
	body := sha256.Sum256(r.body)
	if r.Header.Get("x-acs-content-sha256") != hex.EncodeToString(body[:]) {
		return signature{}, &gatewayError{http.StatusBadRequest, "SignatureDoesNotMatch", "x-acs-content-sha256 does not match the body."}
	}
	date, _ := time.Parse(time.RFC3339, r.Header.Get("x-acs-date")) // else long ago
	return signature{
		keyID: fields["Credential"], given: fields["Signature"], text: textV3(r.Request, names), date: date, nonce: r.Header.Get("x-acs-signature-nonce"),
		mac: func(text string) string {
			return hex.EncodeToString(keyed(sha256.New, s.opts.AccessKeySecret, text))
		},
	}, nil
}

// textV3 is the text that a client must have signed by version 3: the algorithm, and the hash of method,
// path, query, headers and hash of the body.
func textV3(r *http.Request, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", r.Method, r.URL.EscapedPath())
	query := r.URL.Query()
	for i, key := range slices.Sorted(maps.Keys(query)) {
		if i > 0 {
			b.WriteString("&")
		}
		b.WriteString(escape(key) + "=" + escape(query.Get(key)))
	}
	b.WriteString("\n")
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.TrimSpace(value))
	}
	fmt.Fprintf(&b, "\n%s\n%s", strings.Join(names, ";"), r.Header.Get("x-acs-content-sha256"))
	sum := sha256.Sum256([]byte(b.String()))
	return algorithmV3 + "\n" + hex.EncodeToString(sum[:])
}

// escape encodes all but the unreserved characters of RFC 3986.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// requestID is derived from the request, so that transcripts repeat.
func requestID(r *http.Request, body []byte) string {
	return strings.ToUpper(digest(16, r.Method, r.URL.RequestURI(), string(body)))
}

// digest is n hexadecimal digits that depend on the parts.
func digest(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}
