package session_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

func empty(t *testing.T) {
	t.Helper()
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

func TestClientsNameWhatIsMissing(t *testing.T) {
	empty(t)
	full := session.Settings{AccessKey: "a", SecretKey: "s", Region: "cn-hangzhou", ClusterID: "c"}
	without := func(change func(*session.Settings)) *session.Session {
		s := full
		change(&s)
		return session.New(s)
	}
	for variable, s := range map[string]*session.Session{
		"ALIBABA_CLOUD_ACCESS_KEY_ID":     without(func(s *session.Settings) { s.AccessKey = "" }),
		"ALIBABA_CLOUD_ACCESS_KEY_SECRET": without(func(s *session.Settings) { s.SecretKey = "" }),
		"ALIBABA_CLOUD_REGION_ID":         without(func(s *session.Settings) { s.Region = "" }),
		"GPUPLAN_CLUSTER_ID":              without(func(s *session.Settings) { s.ClusterID = "" }),
	} {
		_, err := s.ACS()
		assert.ErrorIs(t, err, session.ErrNotConfigured)
		assert.ErrorContains(t, err, variable)
	}
	client, err := session.New(full).ACS()
	require.NoError(t, err)
	assert.Equal(t, "https://cs.cn-hangzhou.aliyuncs.com", client.Endpoint())

	_, err = session.New(full).Kube()
	assert.ErrorIs(t, err, session.ErrNotConfigured)
	assert.ErrorContains(t, err, "KUBECONFIG")
}

func TestUnknownConfiguration(t *testing.T) {
	empty(t)
	s := session.New(session.Settings{AccessKey: "a", SecretKey: "s", Region: "r", ClusterID: "c", Unknown: []string{session.Endpoint, session.KubeconfigContent}})
	_, err := s.ACS()
	assert.ErrorIs(t, err, session.ErrUnknown)
	assert.ErrorContains(t, err, "endpoint")
	_, err = s.Kube()
	assert.ErrorIs(t, err, session.ErrUnknown)

	var diags diag.Diagnostics
	assert.True(t, s.NotChecked(err, &diags))
	assert.Empty(t, diags, "the provider's configuration has warned already")
}

func TestNotCheckedWarnsOnce(t *testing.T) {
	empty(t)
	s := session.New(session.Settings{})
	_, err := s.Kube()
	var diags diag.Diagnostics
	assert.True(t, s.NotChecked(err, &diags))
	assert.True(t, s.NotChecked(err, &diags))
	assert.Equal(t, 1, diags.WarningsCount())

	wrong := session.New(session.Settings{Kubeconfig: filepath.Join(t.TempDir(), "nowhere")})
	_, err = wrong.Kube()
	require.Error(t, err)
	assert.False(t, wrong.NotChecked(err, &diags), "what was given and is wrong is an error")
	assert.False(t, wrong.NotChecked(nil, &diags))
}

func TestSentence(t *testing.T) {
	assert.Equal(t, "List pods: refused.", session.Sentence(errors.New("list pods: refused")))
	assert.Equal(t, "List nodes: expired: the API server does not know who asks; check the credentials of the kubeconfig's user, or log in again.",
		session.Sentence(fmt.Errorf("list nodes: %w", apierrors.NewUnauthorized("expired"))))
	assert.Equal(t, "Why?", session.Sentence(fmt.Errorf("why?")))
}

func TestDiagnostic(t *testing.T) {
	assert.Equal(t, diag.SeverityError, session.Diagnostic(ledger.Finding{Error: true, Summary: "s"}).Severity())
	assert.Equal(t, diag.SeverityWarning, session.Diagnostic(ledger.Finding{Summary: "s"}).Severity())
}

func TestOwns(t *testing.T) {
	s := session.New(session.Settings{Owner: "mine"})
	for text, want := range map[string]bool{"": true, "mine": true, "theirs": false} {
		labels := map[string]string{contract.ManagedByLabel: contract.ManagedByValue}
		if text != "" {
			labels[contract.OwnerLabel] = text
		}
		assert.Equal(t, want, s.Owns(labels), text)
		delete(labels, contract.ManagedByLabel)
		assert.False(t, s.Owns(labels), text)
	}
}
