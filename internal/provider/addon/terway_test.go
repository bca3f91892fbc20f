package addon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// The document has eRDMA for ACK managed clusters only.
func TestERDMANeedsAManagedCluster(t *testing.T) {
	for name, test := range map[string]struct {
		kind, config string
		refused      bool
	}{
		"managed":                   {"", controller("allocate_all_devices = true"), false},
		"dedicated":                 {"Kubernetes", controller("allocate_all_devices = true"), true},
		"registered":                {"ExternalKubernetes", addon("ack-erdma-controller", ""), true},
		"another add-on, dedicated": {"Kubernetes", addon("ack-arena", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			acctest.StartCloud(t, func(o *acsfake.Options) { o.ClusterType = test.kind })
			cli := acctest.StartCLI(t)
			if !test.refused {
				cli.Write(t, test.config)
				cli.Must(t, "plan")
				return
			}
			cli.Refuses(t, test.config, acctest.Saying("The add-on ack-erdma-controller works in ACK managed clusters, and cluster "+acctest.ClusterID+" is of the type "+test.kind))
		})
	}
}

// Terway is told to leave the network interfaces of eRDMA devices alone before their controller comes.
func TestTerwayNeedsAFilter(t *testing.T) {
	const warns = `eni_conf in the ConfigMap kube-system/eni-config has no eni_tag_filter`
	all := controller("allocate_all_devices = true")
	for name, test := range map[string]struct {
		conf, config string
		warns        bool
	}{
		"no filter":            {`{"version": "1", "max_pool_size": 5}`, all, true},
		"an empty one":         {`{"eni_tag_filter": {}}`, all, true},
		"a filter":             {`{"eni_tag_filter": {"creator": "terway"}}`, all, false},
		"by name":              {`{}`, addon("ack-erdma-controller", ""), true},
		"another add-on":       {`{}`, addon("ack-arena", ""), false},
		"no configuration":     {``, all, false},
		"no Terway":            {"", all, false},
		"what nobody can read": {`max_pool_size: 5`, all, false},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			if name != "no Terway" {
				cloud.Put(t, &corev1.ConfigMap{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "eni-config"},
					Data: map[string]string{"eni_conf": test.conf},
				})
			}
			cli := acctest.StartCLI(t)
			cli.Write(t, test.config)
			said := acctest.Unwrapped(cli.Must(t, "plan"))
			assert.Equal(t, test.warns, strings.Contains(said, warns), said)
			cli.Must(t, "apply", "-auto-approve")
			assert.NotContains(t, acctest.Unwrapped(cli.Must(t, "plan")), warns, "nothing changes")
		})
	}
}
