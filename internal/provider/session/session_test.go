package session_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
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
	full := session.Settings{Identity: identity.Settings{AccessKey: "a", SecretKey: "s"}, Region: "cn-hangzhou", ClusterID: "c"}
	without := func(change func(*session.Settings)) *session.Session {
		s := full
		change(&s)
		return session.New(s)
	}
	for variable, s := range map[string]*session.Session{
		"ALIBABA_CLOUD_ACCESS_KEY_ID": without(func(s *session.Settings) { s.Identity = identity.Settings{} }),
		"ALIBABA_CLOUD_REGION":        without(func(s *session.Settings) { s.Region = "" }),
		"GPUPLAN_CLUSTER_ID":          without(func(s *session.Settings) { s.ClusterID = "" }),
	} {
		_, err := s.ACS()
		assert.ErrorIs(t, err, session.ErrNotConfigured)
		assert.ErrorContains(t, err, variable)
	}
	_, err := without(func(s *session.Settings) { s.Identity.SecretKey = "" }).ACS()
	assert.NotErrorIs(t, err, session.ErrNotConfigured, "what was given and is wrong is an error")
	assert.ErrorContains(t, err, "ALIBABA_CLOUD_ACCESS_KEY_SECRET")
	client, err := session.New(full).ACS()
	require.NoError(t, err)
	assert.Equal(t, "https://cs.cn-hangzhou.aliyuncs.com", client.Endpoint())

	_, err = session.New(full).Kube()
	assert.ErrorIs(t, err, session.ErrNotConfigured)
	assert.ErrorContains(t, err, "KUBECONFIG")
}

func TestUnknownConfiguration(t *testing.T) {
	empty(t)
	s := session.New(session.Settings{Region: "r", ClusterID: "c", Unknown: []string{session.Endpoint, session.AssumeRole, session.KubeconfigContent}})
	_, err := s.ACS()
	assert.ErrorIs(t, err, session.ErrUnknown)
	assert.ErrorContains(t, err, "endpoint, assume_role")
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
	assert.Equal(t, "Get PyTorchJob a/b: interrupted.",
		session.Sentence(fmt.Errorf("get PyTorchJob a/b: %w", fmt.Errorf("client rate limiter Wait returned an error: %w", context.Canceled))))
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

// What another configuration manages is neither to be imported nor to be deleted just so.
func TestAdviceAboutWhatIsInTheWay(t *testing.T) {
	s := session.New(session.Settings{Owner: "mine"})
	pool := session.Foreign{Resource: "gpuplan_node_pool", ID: "c/np", Renamable: true}
	part := session.Foreign{Deletable: true}
	program := session.Foreign{Resource: "gpuplan_scheduler", ID: "ns/s", Deletable: true}
	const theirs = `another Terraform configuration manages it, with the owner "theirs" (this one is "mine"). Change it there`
	const given = " is right only once that configuration has given it up (`terraform state rm` there, or a removed block with destroy = false)"
	for stamp, want := range map[string][3]string{
		"": {
			"it carries no stamp of this provider. Choose another name, or take it over with `terraform import gpuplan_node_pool.NAME c/np`",
			"it carries no stamp of this provider. Delete it first",
			"it carries no stamp of this provider. Delete it first, or take it over with `terraform import gpuplan_scheduler.NAME ns/s`",
		},
		"mine": {
			"it belongs to this configuration. Choose another name, or take it over with `terraform import gpuplan_node_pool.NAME c/np`",
			"it belongs to this configuration. Delete it first",
			"it belongs to this configuration. Delete it first, or take it over with `terraform import gpuplan_scheduler.NAME ns/s`",
		},
		"theirs": {
			theirs + ", or choose another name here; `terraform import gpuplan_node_pool.NAME c/np`" + given,
			theirs + "; to delete it" + given,
			theirs + "; `terraform import gpuplan_scheduler.NAME ns/s`" + given,
		},
	} {
		for i, f := range []session.Foreign{pool, part, program} {
			f.Stamp = stamp
			assert.Equal(t, want[i], s.Advice(f))
		}
	}
}
