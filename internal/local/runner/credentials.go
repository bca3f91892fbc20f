package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

const (
	tokenValidity = 2 * time.Hour
	tokenRenewal  = 30 * time.Minute
)

// writeCredentials writes a kubeconfig with the rights of the pod's service account,
// and returns its path. The token is in a file of its own that clients read again.
func (r *Runner) writeCredentials(ctx context.Context, w *workload) (string, error) {
	if err := r.writeToken(ctx, w); err != nil {
		return "", err
	}
	const name = "gpuplan-local"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: r.Config.Host, CertificateAuthorityData: r.Config.CAData}
	config.AuthInfos[name] = &api.AuthInfo{TokenFile: w.tokenFile()}
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: w.first.Namespace}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.dir, "kubeconfig")
	return file, datadir.WriteFile(file, data)
}

func (w *workload) tokenFile() string { return filepath.Join(w.dir, "token") }

func (r *Runner) writeToken(ctx context.Context, w *workload) error {
	account := w.first.Spec.ServiceAccountName
	seconds := int64(tokenValidity.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := r.client.CoreV1().ServiceAccounts(w.first.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of service account %s: %w", account, err)
	}
	return datadir.WriteFile(w.tokenFile(), []byte(answer.Status.Token))
}

// renewToken keeps the token of a running workload valid until ctx ends.
func (r *Runner) renewToken(ctx context.Context, w *workload) {
	ticker := time.NewTicker(tokenRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := r.writeToken(ctx, w); err != nil && ctx.Err() == nil {
				klog.Warningf("runner: %s: %v", w.key, err)
			}
		}
	}
}

// missing is the error of an object that could not be read; nil when the object may be missing.
func missing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return err
}
