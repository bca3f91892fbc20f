package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// builtWith are versions of others that pages say, VERSION in the text, and MINOR without the last number, with the module that has them.
var builtWith = []struct{ page, says, modules, module string }{
	{"design.md", "k8s.io/kubernetes VERSION with", "go.mod", "k8s.io/kubernetes"},
	{"design.md", "etcd server VERSION,", "go.mod", "go.etcd.io/etcd/server/v3"},
	{"design.md", "kwok VERSION,", "go.mod", "sigs.k8s.io/kwok"},
	{"design.md", "terraform-plugin-framework VERSION,", "go.mod", "github.com/hashicorp/terraform-plugin-framework"},
	{"design.md", "-go VERSION,", "go.mod", "github.com/hashicorp/terraform-plugin-go"},
	{"design.md", "-testing VERSION,", "go.mod", "github.com/hashicorp/terraform-plugin-testing"},
	{"design.md", "credentials-go VERSION and", "go.mod", "github.com/aliyun/credentials-go"},
	{"design.md", "darabonba-openapi VERSION of", "go.mod", "github.com/alibabacloud-go/darabonba-openapi/v2"},
	{"design.md", "alibaba-cloud-sdk-go VERSION in", "go.mod", "github.com/aliyun/alibaba-cloud-sdk-go"},
	{"design.md", "go-nvml VERSION,", "go.mod", "github.com/NVIDIA/go-nvml"},
	{"design.md", "testify VERSION,", "go.mod", "github.com/stretchr/testify"},
	{"install.md", "is built with Kubernetes VERSION.", "go.mod", "k8s.io/kubernetes"},
	{"install.md", "the VERSION API server with", "go.mod", "k8s.io/kubernetes"},
	{"install.md", "kube-apiserver VERSION and", "tools/kube-apiserver-1.35/go.mod", "k8s.io/kubernetes"},
	{"install.md", " and VERSION, built from", "tools/kube-apiserver-1.34/go.mod", "k8s.io/kubernetes"},
	{"install.md", "the scheduler of Karmada VERSION,", "internal/local/karmada/go.mod", "github.com/karmada-io/karmada"},
	{"resources/propagation_policy.md", "by itself Karmada MINOR knows", "internal/local/karmada/go.mod", "github.com/karmada-io/karmada"},
	{"arena.md", "builds arena VERSION from", "tools/arena/go.mod", "github.com/kubeflow/arena"},
	{"arena.md", "which arena VERSION does not list", "tools/arena/go.mod", "github.com/kubeflow/arena"},
	{"resources/training_job.md", "training operator (tests run with MINOR)", "internal/local/joboperator/go.mod", "github.com/kubeflow/training-operator"},
	{"resources/training_job.md", "(0.5 or later; tests run with MINOR)", "internal/local/joboperator/go.mod", "github.com/kubeflow/mpi-operator"},
	{"resources/training_job.md", "JobSet 0.6 or later; tests run with MINOR)", "internal/local/joboperator/go.mod", "sigs.k8s.io/jobset"},
	{"resources/training_job.md", "Kubeflow Trainer 2.1 or later; tests run with MINOR)", "internal/local/joboperator/go.mod", "github.com/kubeflow/trainer/v2"},
}

// The versions that pages say are those that programs and tests are built with.
func TestVersionsOfOthers(t *testing.T) {
	for _, v := range builtWith {
		page, err := os.ReadFile(filepath.FromSlash(v.page))
		require.NoError(t, err)
		modules, err := os.ReadFile(filepath.Join(root, v.modules))
		require.NoError(t, err)
		found := regexp.MustCompile(`(?m)\s` + regexp.QuoteMeta(v.module) + ` v([\w.-]+)`).FindSubmatch(modules)
		require.NotNil(t, found, "%s has no %s", v.modules, v.module)
		version := string(found[1])
		minor := version[:max(0, strings.LastIndex(version, "."))]
		says := strings.NewReplacer("VERSION", version, "MINOR", minor).Replace(v.says)
		assert.True(t, strings.Contains(string(page), says), "%s does not say %q, by %s", v.page, says, v.modules)
	}
}
