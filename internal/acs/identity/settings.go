// Package identity finds out as whom the provider talks to Alibaba Cloud: it picks one of
// the credentials providers of the vendor's library (github.com/aliyun/credentials-go) by
// what the user has set, and makes it safe for concurrent use, interruptible, and silent
// about secrets.
package identity

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/credentials-go/credentials/providers"
)

// Settings are what the user has set. Their names, and the order in which they count, are
// those of the alicloud provider: an access key, a profile, a URI, the role of the ECS
// instance, a role assumed with an OIDC token; on top of any of these, a role to assume.
// Last comes the current profile of the aliyun command, if it has a file.
type Settings struct {
	// AccessKey and SecretKey are an access key, SecurityToken what a temporary one has besides.
	AccessKey, SecretKey, SecurityToken string
	// Profile is the name of a profile in SharedCredentialsFile, "" for the file's current one; the
	// file is "" for that of the aliyun command, ~/.aliyun/config.json.
	Profile, SharedCredentialsFile string
	// CredentialsURI answers with temporary credentials (a sidecar).
	CredentialsURI string
	// ECSRoleName is the RAM role of the ECS instance that this runs on.
	ECSRoleName string
	// OIDC is a role to assume with a token, nil for none.
	OIDC *OIDC
	// Role is a role to assume with the credentials of all the above, nil for none.
	Role *Role
	// STSEndpoint is the host, or URL, of the Security Token Service, "" for the public one, or what the
	// vendor's variables ALIBABA_CLOUD_STS_REGION and ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED say.
	STSEndpoint string
}

// Role is a RAM role to assume.
type Role struct {
	// ARN is "acs:ram::<account>:role/<name>".
	ARN string
	// SessionName is what the account's audit log calls the session, "" for "terraform".
	SessionName string
	// Policy is a policy in JSON that narrows the role's rights, "" for none.
	Policy string
	// ExternalID is what the role's trust policy may ask for, "" for nothing.
	ExternalID string
	// Seconds is how long credentials hold, 900 or more, 0 for an hour; they are renewed.
	Seconds int
}

// OIDC is a RAM role to assume with a token of an OIDC provider, as pods do in ACK (RRSA).
type OIDC struct {
	Role
	// ProviderARN is "acs:ram::<account>:oidc-provider/<name>".
	ProviderARN string
	// TokenFile holds the token, which is read again for each renewal; Token is the token itself.
	TokenFile, Token string
}

const sessionName = "terraform"

// ErrNone means that nothing says as whom to talk to Alibaba Cloud.
var ErrNone = errors.New("no credentials")

// New returns the credentials that the settings are about; it contacts nobody. It fails
// with [ErrNone], or when what is set is not complete.
func New(s Settings) (*Source, error) {
	s.STSEndpoint = strings.TrimSuffix(strings.TrimPrefix(s.STSEndpoint, "https://"), "/")
	provider, origin, err := s.base()
	if err != nil {
		return nil, err
	}
	if s.Role != nil {
		provider, err = providers.NewRAMRoleARNCredentialsProviderBuilder().
			WithCredentialsProvider(provider).WithRoleArn(s.Role.ARN).WithRoleSessionName(s.Role.session()).
			WithPolicy(s.Role.Policy).WithExternalId(s.Role.ExternalID).WithDurationSeconds(s.Role.Seconds).
			WithStsEndpoint(s.STSEndpoint).Build()
		if err != nil {
			return nil, fmt.Errorf("assume_role: %w", err)
		}
		origin = "the role " + s.Role.ARN + ", assumed with " + origin
	}
	source := &Source{origin: origin, provider: provider, turn: make(chan struct{}, 1), hidden: []string{s.SecretKey, s.SecurityToken}}
	if s.OIDC != nil {
		source.hidden = append(source.hidden, s.OIDC.Token)
	}
	source.hidden = append(source.hidden, secretsOf(s.CredentialsURI)...)
	return source, nil
}

// shortest is the length of the shortest part of a URI that is taken for a secret: a number of a version is none, and the text of an error
// without all its digits says nothing.
const shortest = 6

// secretsOf are the parts of a URI that may be secrets: servers may repeat them in what they answer.
func secretsOf(uri string) (secrets []string) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil
	}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, password)
	}
	for _, values := range u.Query() {
		secrets = append(secrets, values...)
	}
	return slices.DeleteFunc(secrets, func(text string) bool { return len(text) < shortest })
}

func (r Role) session() string {
	if r.SessionName == "" {
		return sessionName
	}
	return r.SessionName
}

// renewal is how long before they expire the library renews credentials.
const renewal = 180 * time.Second

func (r Role) valid() time.Duration {
	if r.Seconds == 0 {
		return time.Hour
	}
	return time.Duration(r.Seconds) * time.Second
}

// base is the provider of the credentials without the role to assume, and where they are from.
func (s Settings) base() (providers.CredentialsProvider, string, error) {
	switch {
	case s.AccessKey != "" || s.SecretKey != "":
		return s.accessKey()
	case s.usesProfile():
		return s.profile()
	case s.CredentialsURI != "":
		provider, err := providers.NewURLCredentialsProviderBuilder().WithUrl(s.CredentialsURI).Build()
		return provider, "what credentials_uri answers", err
	case s.ECSRoleName != "":
		provider, err := providers.NewECSRAMRoleCredentialsProviderBuilder().WithRoleName(s.ECSRoleName).Build()
		return provider, "the RAM role " + s.ECSRoleName + " of this ECS instance", err
	case s.OIDC != nil:
		return s.oidc()
	}
	return nil, "", ErrNone
}

// usesProfile reports whether the credentials are those of a profile.
func (s Settings) usesProfile() bool {
	switch {
	case s.AccessKey != "" || s.SecretKey != "":
		return false
	case s.Profile != "" || s.SharedCredentialsFile != "":
		return true
	case s.CredentialsURI != "" || s.ECSRoleName != "" || s.OIDC != nil:
		return false
	}
	_, err := os.Stat(s.file())
	return err == nil && !strings.EqualFold(os.Getenv(profilesOff), "true")
}

// profilesOff is the vendor's variable that forbids profiles.
const profilesOff = "ALIBABA_CLOUD_CLI_PROFILE_DISABLED"

func (s Settings) accessKey() (providers.CredentialsProvider, string, error) {
	switch {
	case s.SecretKey == "":
		return nil, "", errors.New("access_key is set without secret_key: set that too, or the environment variable ALIBABA_CLOUD_ACCESS_KEY_SECRET")
	case s.AccessKey == "":
		return nil, "", errors.New("secret_key is set without access_key: set that too, or the environment variable ALIBABA_CLOUD_ACCESS_KEY_ID")
	}
	origin := "the access key " + s.AccessKey + " and its secret (access_key, secret_key; ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET)"
	if s.SecurityToken == "" {
		provider, err := providers.NewStaticAKCredentialsProviderBuilder().WithAccessKeyId(s.AccessKey).WithAccessKeySecret(s.SecretKey).Build()
		return provider, origin, err
	}
	provider, err := providers.NewStaticSTSCredentialsProviderBuilder().
		WithAccessKeyId(s.AccessKey).WithAccessKeySecret(s.SecretKey).WithSecurityToken(s.SecurityToken).Build()
	return provider, origin + " with a security token (security_token, ALIBABA_CLOUD_SECURITY_TOKEN)", err
}

func (s Settings) oidc() (providers.CredentialsProvider, string, error) {
	builder := providers.NewOIDCCredentialsProviderBuilder().
		WithOIDCProviderARN(s.OIDC.ProviderARN).WithRoleArn(s.OIDC.ARN).WithRoleSessionName(s.OIDC.session()).
		WithPolicy(s.OIDC.Policy).WithDurationSeconds(s.OIDC.Seconds).WithSTSEndpoint(s.STSEndpoint)
	origin := "the role " + s.OIDC.ARN + ", assumed with an OIDC token"
	if s.OIDC.Token != "" {
		return &tokenText{builder: builder, token: s.OIDC.Token, hold: s.OIDC.valid() - renewal}, origin, nil
	}
	provider, err := builder.WithOIDCTokenFilePath(s.OIDC.TokenFile).Build()
	if err != nil {
		return nil, "", fmt.Errorf("assume_role_with_oidc: %w", err)
	}
	return provider, origin + " of " + s.OIDC.TokenFile, nil
}

func (s Settings) profile() (providers.CredentialsProvider, string, error) {
	file, err := readFile(s.file())
	if err != nil {
		return nil, "", err
	}
	p, err := file.find(s.Profile)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", s.file(), err)
	}
	if err := file.checkSources(p); err != nil {
		return nil, "", fmt.Errorf("%s: %w", s.file(), err)
	}
	origin := fmt.Sprintf("the profile %q of %s", p.Name, s.file())
	if p.Mode == modeProcess {
		return &process{command: p.Command, within: processTime}, origin, nil
	}
	provider, err := providers.NewCLIProfileCredentialsProviderBuilder().WithProfileFile(s.file()).WithProfileName(p.Name).Build()
	if err != nil {
		return nil, "", fmt.Errorf("%w; unset %s to use a profile", err, profilesOff)
	}
	return provider, origin, nil
}

// file is the path of the file with profiles.
func (s Settings) file() string {
	home, err := os.UserHomeDir()
	if s.SharedCredentialsFile == "" {
		return filepath.Join(home, ".aliyun", "config.json")
	}
	if rest, ok := strings.CutPrefix(s.SharedCredentialsFile, "~/"); ok && err == nil {
		return filepath.Join(home, rest)
	}
	return s.SharedCredentialsFile
}
