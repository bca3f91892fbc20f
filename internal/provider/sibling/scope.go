package sibling

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"k8s.io/client-go/rest"
)

// Scope is what a provider configuration is for.
type Scope struct {
	// Owner is the stamp on what is created; configurations with different ones are strangers.
	Owner string `json:"owner"`
	// Server tells Kubernetes API servers apart, see [Scope.Reach], and ClusterID is the ID of the ACK cluster; ""
	// where it is not known.
	Server    string `json:"server"`
	ClusterID string `json:"clusterId"`
	// Access is Server with the user, by whom a proxy before several clusters may choose one.
	Access string `json:"access"`
}

// Reach sets how the API server is reached. Of one address there may be several: in networks of their own behind
// a proxy each, or by names in TLS. Each has a certificate authority of its own, as a rule.
func (s *Scope) Reach(c *rest.Config) {
	c = rest.CopyConfig(c)
	_ = rest.LoadTLSFiles(c) // without the files nothing is reached
	server := []any{c.Host, c.ServerName, c.CAData}
	if request, err := http.NewRequest(http.MethodGet, c.Host, http.NoBody); err == nil && c.Proxy != nil {
		if proxy, err := c.Proxy(request); err == nil && proxy != nil {
			server = append(server, proxy.String())
		}
	}
	user := []any{c.Username, c.Password, c.BearerToken, c.BearerTokenFile, c.CertData, c.Impersonate.UserName}
	if e := c.ExecProvider; e != nil {
		user = append(user, e.Command, e.Args, e.Env)
	}
	s.Server, s.Access = digest(server), digest([]any{server, user})
}

// digest is one word for all the parts, which may be secret.
func digest(parts []any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic("sibling: texts are not JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// overlaps reports whether two configurations are for one cluster: jobs go to one API server, or node
// pools to one cluster. Two that name two clusters and have one access are: one lacks its kubeconfig.
func (s Scope) overlaps(other Scope) bool {
	same := func(a, b string) bool { return a == b && a != "" }
	switch {
	case s.Owner != other.Owner:
		return false
	case s.ClusterID != "" && other.ClusterID != "":
		return s.ClusterID == other.ClusterID || same(s.Access, other.Access)
	default:
		return same(s.Server, other.Server)
	}
}
