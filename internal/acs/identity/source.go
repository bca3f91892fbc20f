package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aliyun/credentials-go/credentials/providers"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// Source gives credentials, which are fetched when they are first asked for and renewed
// before they expire. It is safe for concurrent use.
type Source struct {
	origin   string
	provider providers.CredentialsProvider
	hidden   []string

	turn  chan struct{} // held by who asks the provider, which is not safe for concurrent use
	last  acs.Credentials
	known time.Time // when the provider gave last
}

// String says where the credentials come from, without secrets.
func (s *Source) String() string { return s.origin }

// patience is how long after they were last known to be good credentials are used that
// cannot be renewed; they hold for longer than that ([renewal]).
const patience = renewal - 30*time.Second

// Get returns credentials, at the latest when the context ends. The library's requests
// take no context: one that is under way is left behind, and ends by its own time limit.
func (s *Source) Get(ctx context.Context) (acs.Credentials, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return acs.Credentials{}, ctx.Err()
	}
	type outcome struct {
		credentials acs.Credentials
		err         error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-s.turn }()
		c, err := s.ask()
		done <- outcome{c, err}
	}()
	select {
	case o := <-done:
		return o.credentials, o.err
	case <-ctx.Done():
		return acs.Credentials{}, ctx.Err()
	}
}

func (s *Source) ask() (acs.Credentials, error) {
	c, err := s.provider.GetCredentials()
	if err == nil {
		s.last, s.known = acs.Credentials{AccessKeyID: c.AccessKeyId, AccessKeySecret: c.AccessKeySecret, SecurityToken: c.SecurityToken}, time.Now()
	} else if time.Since(s.known) > patience {
		return acs.Credentials{}, fmt.Errorf("cannot get credentials: %s; they are %s", s.reason(err), s.origin)
	}
	return s.last, nil
}

// maxReason limits the text of a failure, in bytes.
const maxReason = 300

// address is a URL; its user, path and query may hold secrets.
var address = regexp.MustCompile(`(https?://)(?:[^/\s"@]*@)?([^/\s"?]+)[^\s"]*`)

// reason is what a failure of the library says without what may hold secrets: addresses with
// signed queries, and bodies of answers, of which only code and message of a refusal remain.
func (s *Source) reason(err error) string {
	text := err.Error()
	var request *url.Error
	if errors.As(err, &request) {
		text = request.Err.Error()
		if u, err := url.Parse(request.URL); err == nil {
			text = "no answer from " + u.Host + ": " + text
		}
	}
	if prefix, body, found := strings.Cut(text, "{"); found {
		text = strings.TrimSuffix(strings.TrimSpace(prefix), ":")
		var refusal struct{ Code, Message, RequestID string }
		if json.Unmarshal([]byte("{"+body), &refusal) == nil && refusal.Code != "" {
			message, _, _ := strings.Cut(refusal.Message, "string to sign is")
			text = fmt.Sprintf("%s: %s: %s (request %s)", text, refusal.Code, message, refusal.RequestID)
		}
	}
	text = address.ReplaceAllString(text, "$1$2")
	for _, secret := range append(s.hidden, s.last.AccessKeySecret, s.last.SecurityToken) {
		if secret != "" {
			text = strings.NewReplacer(secret, "***", url.QueryEscape(secret), "***", url.PathEscape(secret), "***").Replace(text)
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// tokenText assumes a role with a token that is in no file: the library reads tokens from
// files only.
type tokenText struct {
	builder *providers.OIDCCredentialsProviderBuilder
	token   string
	hold    time.Duration // how long credentials need no renewal
	last    *providers.Credentials
	until   time.Time
}

func (t *tokenText) GetProviderName() string { return "oidc_role_arn" }

// GetCredentials writes the token to a file for its user alone, for as long as the request takes.
func (t *tokenText) GetCredentials() (*providers.Credentials, error) {
	if time.Now().Before(t.until) {
		return t.last, nil
	}
	file, err := os.CreateTemp("", "gpuplan-oidc-token-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(t.token)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	provider, err := t.builder.WithOIDCTokenFilePath(file.Name()).Build()
	if err != nil {
		return nil, err
	}
	c, err := provider.GetCredentials()
	if err == nil {
		t.last, t.until = c, time.Now().Add(t.hold)
	}
	return c, err
}
