// Package account runs the provider through the real terraform against a cluster of a real
// account (`make testacc`), and against the emulated one, and records what the service answers.
package account

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/transcript"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/nodepool/setting"
)

// needed are the variables without which there is no account to test with, and what they are.
var needed = map[string]string{
	"TF_ACC":                          "1",
	"ALIBABA_CLOUD_ACCESS_KEY_ID":     "access key",
	"ALIBABA_CLOUD_ACCESS_KEY_SECRET": "its secret",
	"ALIBABA_CLOUD_REGION":            "region of the cluster",
	"GPUPLAN_CLUSTER_ID":              "cluster, in which a node pool without nodes is created and deleted",
}

// transcripts is where what was recorded is kept.
const transcripts = "../../acs/testdata/transcripts"

// recorder stands before the service while a test records.
var recorder = &transcript.Recorder{}

func TestMain(m *testing.M) {
	proxy := httptest.NewServer(recorder)
	_ = os.Setenv("HTTP_PROXY", proxy.URL) // of which a process reads its proxies once
	code := m.Run()
	proxy.Close()
	os.Exit(code)
}

// host is where the service is; a recorder takes what is sent there without TLS.
func host(region string) string { return "cs." + region + ".aliyuncs.com" }

// A pool without nodes is created, changed, imported and deleted in a real cluster. RECORD=1 writes the
// conversation, without anything that names the account, to internal/acs/testdata/transcripts.
func TestAccount(t *testing.T) {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if os.Getenv(name) == "" {
			missing = append(missing, name+" ("+needed[name]+")")
		}
	}
	if len(missing) > 0 {
		t.Skip("no account to test with; the environment lacks " + strings.Join(missing, ", "))
	}
	region := os.Getenv("ALIBABA_CLOUD_REGION")
	recording := os.Getenv("RECORD") != ""
	if recording {
		recorder.Send = http.DefaultTransport
		t.Setenv("GPUPLAN_CS_ENDPOINT", "http://"+host(region))
	}
	client, err := acs.New(acs.Config{
		Credentials: acs.Credentials{
			AccessKeyID: os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID"), AccessKeySecret: os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
			SecurityToken: os.Getenv("ALIBABA_CLOUD_SECURITY_TOKEN"),
		},
		Region: region, Endpoint: os.Getenv("GPUPLAN_CS_ENDPOINT"), UserAgent: "terraform-provider-gpuplan/test",
	})
	require.NoError(t, err)
	lifecycle(t, client, os.Getenv("GPUPLAN_CLUSTER_ID"))
	if recording && !t.Failed() {
		origin := fmt.Sprintf("an account, recorded %s", time.Now().UTC().Format(time.DateOnly))
		require.NoError(t, recorder.Transcript(origin).Write(filepath.Join(transcripts, "pool.json")))
	}
}

// The same against the emulated cloud, recorded; nothing of the cloud's own stays in the transcript.
func TestEmulator(t *testing.T) {
	cloud := acctest.StartCloud(t)
	recorder.Send = roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		cloud.ACS.ServeHTTP(w, r)
		return w.Result(), nil
	})
	t.Setenv("GPUPLAN_CS_ENDPOINT", "http://"+host(acctest.Region))
	client, err := acs.New(acs.Config{Credentials: cloud.Credentials(), Region: acctest.Region, Endpoint: cloud.Endpoint, PollInterval: time.Millisecond})
	require.NoError(t, err)
	lifecycle(t, client, acctest.ClusterID)

	file := filepath.Join(t.TempDir(), "pool.json")
	require.NoError(t, recorder.Transcript("an emulator, in a test").Write(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, operation := range []string{"CreateClusterNodePool", "ModifyClusterNodePool", "DescribeClusterNodePoolDetail", "DeleteClusterNodepool", "DescribeTaskInfo"} {
		assert.Contains(t, string(text), operation)
	}
	for _, hidden := range []string{acctest.ClusterID, cloud.Credentials().AccessKeyID, cloud.Credentials().AccessKeySecret, "vsw-local", prefix, "Signature"} {
		assert.NotContains(t, string(text), hidden)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// prefix begins the names of the pools that the test creates.
const prefix = "gpuplan-test-"

func lifecycle(t *testing.T, client *acs.Client, clusterID string) {
	t.Helper()
	cluster, err := client.GetCluster(t.Context(), clusterID)
	require.NoError(t, err)
	require.Equal(t, acs.ClusterRunning, cluster.State, "the cluster must run")
	before, err := client.ListNodePools(t.Context(), clusterID)
	require.NoError(t, err)
	t.Logf("cluster %s, Kubernetes %s, %d pools", cluster.Spec, cluster.Version, len(before))

	name := prefix + strings.ToLower(rand.Text()[:8])
	config := func(label string) string {
		return fmt.Sprintf(`
provider "gpuplan" {
  placement_check = "off"
}

resource "gpuplan_node_pool" "test" {
  name          = %q
  instance_type = %q
  size          = 0
  vswitch_ids   = [%q]
  labels        = { purpose = %q }
}
`, name, cmp.Or(os.Getenv("GPUPLAN_TEST_INSTANCE_TYPE"), "ecs.gn6i-c4g1.xlarge"), cmp.Or(os.Getenv("GPUPLAN_TEST_VSWITCH_ID"), cluster.VSwitchID), label)
	}
	const pool = "gpuplan_node_pool.test"
	only := func(action plancheck.ResourceActionType) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction(pool, action)}}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		CheckDestroy: func(*terraform.State) error {
			pools, err := client.ListNodePools(t.Context(), clusterID)
			if err != nil {
				return err
			}
			for _, p := range pools {
				if p.Info.Name == name {
					return fmt.Errorf("the pool %s is still there, in state %s: delete it", name, p.Status.State)
				}
			}
			return nil
		},
		Steps: []resource.TestStep{
			{Config: config("test"), ConfigPlanChecks: only(plancheck.ResourceActionCreate)},
			{Config: config("changed"), ConfigPlanChecks: only(plancheck.ResourceActionUpdate), Check: resource.TestCheckResourceAttr(pool, "labels.purpose", "changed")},
			{ResourceName: pool, ImportState: true, ImportStateVerify: true, ImportStateVerifyIgnore: slices.Collect(maps.Keys(setting.Attributes()))},
		},
	})
	after, err := client.ListNodePools(t.Context(), clusterID)
	require.NoError(t, err)
	assert.Len(t, after, len(before), "the pools that were there are there")
}
