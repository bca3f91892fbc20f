package acs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Error is an answer of the service that refuses a request.
type Error struct {
	// Operation is what was asked for, "CreateClusterNodePool".
	Operation string
	// Status is the HTTP status.
	Status int
	// Code is the service's code, "ErrorNodePoolNotFound", or "" when the answer had none.
	Code string
	// Message is the service's text.
	Message string
	// RequestID identifies the request to the vendor's support.
	RequestID string
	// Hint tells the user what to do about it, "" when there is nothing to add.
	Hint string
}

func (e *Error) Error() string {
	code := e.Code
	if code == "" {
		code = "HTTP " + fmt.Sprint(e.Status)
	}
	text := fmt.Sprintf("%s: %s: %s", e.Operation, code, e.Message)
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Code returns the service's code of an error, "" when it is none of the service's.
func Code(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// IsNotFound reports whether the service says that the cluster, pool, add-on or task of the request does
// not exist. The 404 of a proxy or gateway, which has none of the service's codes, says nothing of these.
func IsNotFound(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == "AddonNotFound" || strings.HasPrefix(e.Code, "Error") && strings.HasSuffix(e.Code, "NotFound")
}

// IsThrottled reports whether the request was refused because there were too many.
func IsThrottled(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == http.StatusTooManyRequests || strings.HasPrefix(e.Code, "Throttling") || e.Code == "Rejected.Throttling"
}

// serverFault reports whether the service failed, so that nobody knows whether it
// carried the request out.
func serverFault(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Status >= 500 || e.Code == "InternalError" || e.Code == "ServiceUnavailable")
}

// maxMessage limits the text taken from an answer, in bytes.
const maxMessage = 300

// parseError reads the body of a refusal. The gateway (signature, rights, throttling)
// writes Code, Message, RequestId; the service itself code, message, requestId or
// request_id. Keys are compared without case and underscores.
func parseError(status int, body []byte) *Error {
	e := &Error{Status: status}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		for key, raw := range fields {
			var text string
			if json.Unmarshal(raw, &text) != nil {
				continue
			}
			switch strings.ReplaceAll(strings.ToLower(key), "_", "") {
			case "code":
				e.Code = text
			case "message":
				e.Message = text
			case "requestid":
				e.RequestID = text
			}
		}
	}
	if e.Message == "" {
		e.Message = strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), maxMessage)])), "")
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	return e
}

// signed begins what the gateway adds to the message about a wrong signature: everything
// that it expected to be signed, which tells the user nothing.
var signed = regexp.MustCompile(`(?is)[;,.\s]*(server|client)?\s*(string\s*to\s*sign|canonical\s*request)\s+is\b.*`)

// withoutToken takes the security token of a request out of a text; the gateway repeats
// signed headers in the message about a wrong signature.
func withoutToken(text string, r *http.Request) string {
	if r == nil || r.Header.Get(securityToken) == "" {
		return text
	}
	return strings.ReplaceAll(text, r.Header.Get(securityToken), "***")
}

// brief is the part of a message that is for people, in one line.
func brief(message string) string {
	message = strings.Join(strings.Fields(signed.ReplaceAllString(message, ".")), " ")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}

func (c *Client) hint(code string) string {
	switch {
	case strings.HasPrefix(code, "InvalidAccessKeyId"), code == "SignatureDoesNotMatch", code == "IncompleteSignature":
		return "check " + c.credentials.String()
	case strings.HasPrefix(code, "InvalidSecurityToken"):
		return "get new temporary credentials; these are " + c.credentials.String()
	case strings.HasPrefix(code, "Forbidden"), code == "NoPermission":
		return "give the user or role the cs: actions it needs; asked with " + c.credentials.String()
	case code == "ErrorClusterNotFound":
		return "the service also says this of a cluster of another region; asked in " + c.where()
	case code == "MissingAuth.AliyunOOSLifecycleHook4CSRole":
		return "grant the service role AliyunOOSLifecycleHook4CSRole to the account"
	}
	return ""
}

func (c *Client) where() string {
	if c.region == "" {
		return c.Endpoint()
	}
	return "region " + c.region
}
