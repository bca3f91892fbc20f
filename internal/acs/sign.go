package acs

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Credentials are an access key, with a security token when it is a temporary one.
// Printing them shows only the ID.
type Credentials struct {
	AccessKeyID     string
	AccessKeySecret string
	SecurityToken   string
}

// String hides the secret parts.
func (c Credentials) String() string { return "access key " + c.AccessKeyID }

// GoString hides the secret parts.
func (c Credentials) GoString() string { return c.String() }

// redact removes the secret parts from a text; the gateway repeats signed headers in
// the message about a wrong signature.
func (c Credentials) redact(text string) string {
	for _, secret := range []string{c.AccessKeySecret, c.SecurityToken} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

// sign sets the headers of the ROA signature, HMAC-SHA1 (Alibaba Cloud: "Request
// structure and signature of ROA-style APIs"; alibaba-cloud-sdk-go, sdk/auth).
func (c Credentials) sign(r *http.Request, body []byte, now time.Time) {
	sum := md5.Sum(body)
	r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	r.Header.Set("Date", now.UTC().Format(http.TimeFormat))
	r.Header.Set("x-acs-signature-method", "HMAC-SHA1")
	r.Header.Set("x-acs-signature-version", "1.0")
	if c.SecurityToken != "" {
		r.Header.Set("x-acs-security-token", c.SecurityToken)
	}
	mac := hmac.New(sha1.New, []byte(c.AccessKeySecret))
	mac.Write([]byte(stringToSign(r)))
	r.Header.Set("Authorization", "acs "+c.AccessKeyID+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// stringToSign joins the method, four headers, all x-acs- headers sorted by name, and
// the path with the query sorted by key. Query values go in unencoded; a key with an
// empty value goes in without "=".
func stringToSign(r *http.Request) string {
	var b strings.Builder
	for _, line := range []string{r.Method, r.Header.Get("Accept"), r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"), r.Header.Get("Date")} {
		b.WriteString(line + "\n")
	}
	var lines []string
	for name, values := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-acs-") {
			lines = append(lines, name+":"+values[0]+"\n")
		}
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	b.WriteString(r.URL.Path)
	b.WriteString(plainQuery(r.URL.Query()))
	return b.String()
}

func plainQuery(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if value := query.Get(key); value != "" {
			key += "=" + value
		}
		parts = append(parts, key)
	}
	return "?" + strings.Join(parts, "&")
}
