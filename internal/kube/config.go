package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access says how to find the API server. The first of these that is there is
// taken: Content, Path, the files of the environment variable KUBECONFIG, the
// file ~/.kube/config, the pod's own service account: client-go's and kubectl's order.
type Access struct {
	// Path is the path of a kubeconfig file.
	Path string
	// Content is the text of a kubeconfig.
	Content string
	// Context is the name of the kubeconfig's context, "" for its current one.
	Context string
}

// ErrNoSource means that nothing says how to find the API server.
var ErrNoSource = errors.New("no kubeconfig")

// ConfigFrom returns the connection that access describes. It makes no request.
func ConfigFrom(access Access) (*rest.Config, error) {
	raw, origin, err := access.load()
	if err != nil {
		return nil, err
	}
	if raw == nil {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read the pod's service account: %w", err)
		}
		return cfg, nil
	}
	if err := checkContext(raw, access.Context, origin); err != nil {
		return nil, err
	}
	if err := checkAddresses(raw, origin); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{CurrentContext: access.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be used: %w", origin, err)
	}
	return cfg, nil
}

// load returns the kubeconfig and what to call it; nil means the pod's own service account.
func (a Access) load() (raw *clientcmdapi.Config, origin string, err error) {
	if a.Content != "" {
		raw, err := clientcmd.Load([]byte(a.Content))
		if err != nil {
			return nil, "", fmt.Errorf("the kubeconfig text is not a kubeconfig: %w", readable(err))
		}
		return raw, "the kubeconfig text", nil
	}
	if a.Path != "" {
		return loadFiles([]string{a.Path})
	}
	if env := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); env != "" {
		return loadFiles(filepath.SplitList(env))
	}
	raw, origin, err = loadFiles([]string{clientcmd.RecommendedHomeFile})
	missing := errors.Is(err, fs.ErrNotExist)
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" && (missing || err == nil && clientcmdapi.IsConfigEmpty(raw)) {
		return nil, "", nil
	}
	if missing {
		return nil, "", fmt.Errorf("%w: none was given, KUBECONFIG is not set, and %s does not exist", ErrNoSource, clientcmd.RecommendedHomeFile)
	}
	return raw, origin, err
}

// loadFiles merges kubeconfig files; of several, as in KUBECONFIG, some may be missing.
func loadFiles(paths []string) (*clientcmdapi.Config, string, error) {
	origin := "kubeconfig " + strings.Join(paths, string(filepath.ListSeparator))
	present := slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
		_, err := os.Stat(p)
		return p == "" || errors.Is(err, fs.ErrNotExist)
	})
	if len(present) == 0 {
		return nil, "", fmt.Errorf("%s: %w; check the path or the environment variable KUBECONFIG", origin, fs.ErrNotExist)
	}
	raw, err := (&clientcmd.ClientConfigLoadingRules{Precedence: present}).Load()
	if err != nil {
		return nil, "", fmt.Errorf("%s cannot be read: %w", origin, readable(err))
	}
	return raw, origin, nil
}

// errNoObject is what is wrong with a text that is not even an object.
var errNoObject = errors.New("it is neither a YAML nor a JSON object with apiVersion and kind")

// readable is an error of client-go without the Go type that it could not fill.
func readable(err error) error {
	if strings.Contains(err.Error(), "into Go value of type") {
		return errNoObject
	}
	return err
}

// checkContext says which contexts there are when the wanted one is missing.
func checkContext(raw *clientcmdapi.Config, context, origin string) error {
	if context == "" {
		context = raw.CurrentContext
	}
	if context == "" && len(raw.Contexts) == 0 && len(raw.Clusters) == 0 {
		return fmt.Errorf("%s names no cluster at all: take the cluster's own", origin)
	}
	if context == "" && len(raw.Contexts) == 0 {
		return fmt.Errorf("%s has no contexts: add one that joins a cluster and a user", origin)
	}
	if context == "" {
		return fmt.Errorf("%s has no current context: name one of its contexts: %s", origin, contextNames(raw))
	}
	if _, ok := raw.Contexts[context]; !ok {
		return fmt.Errorf("%s has no context %q; its contexts: %s", origin, context, contextNames(raw))
	}
	return nil
}

// checkAddresses finds addresses that cannot be parsed before client-go does, whose errors
// repeat them: an address may carry a password.
func checkAddresses(raw *clientcmdapi.Config, origin string) error {
	for name, c := range raw.Clusters {
		for field, address := range map[string]string{"server": c.Server, "proxy-url": c.ProxyURL} {
			if _, err := url.Parse(address); err != nil {
				return fmt.Errorf("%s: %s of cluster %q is not a URL; write it as in https://host:6443", origin, field, name)
			}
		}
	}
	return nil
}

func contextNames(raw *clientcmdapi.Config) string {
	names := make([]string, 0, len(raw.Contexts))
	for name := range raw.Contexts {
		names = append(names, name)
	}
	if len(names) == 0 {
		return "it has none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
