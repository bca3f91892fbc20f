package trainingjob_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/config"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/acctest"
)

// identities are the UIDs of both jobs and of their pods, by name.
func identities(t *testing.T, client *kube.Client) map[string]string {
	t.Helper()
	ids := map[string]string{}
	for framework, name := range map[job.Framework]string{job.MPI: "vgg16", job.PyTorch: "mnist"} {
		obj, err := client.Get(t.Context(), framework.GVK(), "default", name)
		require.NoError(t, err)
		ids[name] = string(obj.GetUID())
	}
	pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + " in (vgg16, mnist)"})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		ids[pod.Name] = string(pod.UID)
	}
	return ids
}

// Jobs are made known to arena, and unknown again, without a pod that ends; a job that is
// created for arena is an MPIJob of the version that arena knows, with the launcher Job that
// it looks for, and stays that.
func TestArenaIsSwitchedInPlace(t *testing.T) {
	client := acctest.OnPlatform(t)
	platform := localtest.Start(t)
	var before map[string]string
	alpha := func() bool {
		obj, err := client.Get(t.Context(), job.MPI.GVK(), "default", "vgg16")
		require.NoError(t, err)
		return job.Alpha(obj)
	}
	known := func(yes bool) {
		t.Helper()
		for _, name := range []string{"vgg16-mpijob", "mnist-pytorchjob"} {
			_, err := client.Get(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "default", name)
			assert.Equal(t, yes, err == nil, name)
		}
		pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.ArenaReleaseLabel})
		require.NoError(t, err)
		assert.Len(t, pods.Items, map[bool]int{true: 7}[yes])
		for _, pod := range pods.Items {
			assert.NotEmpty(t, pod.Annotations[contract.ArenaRequestGPUsAnnotation], pod.Name)
		}
	}
	on := func(arena bool, variables config.Variables, action plancheck.ResourceActionType, check func()) resource.TestStep {
		all := config.Variables{"arena": config.BoolVariable(arena)}
		maps.Copy(all, variables)
		s := resource.TestStep{ConfigFile: config.StaticFile("testdata/arena/main.tf"), ConfigVariables: all}
		s.ConfigPlanChecks.PreApply = []plancheck.PlanCheck{plancheck.ExpectResourceAction(mpi, action)}
		s.ConfigPlanChecks.PostApplyPostRefresh = []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}
		s.ConfigStateChecks = []statecheck.StateCheck{
			value(mpi, "status", knownvalue.StringExact("Running")), value(mpi, "placement_as_planned", knownvalue.Bool(true)),
		}
		s.Check = func(*terraform.State) error {
			check()
			return nil
		}
		return s
	}
	second := config.Variables{"run": config.StringVariable("2")}
	deleted := on(true, second, plancheck.ResourceActionCreate, func() {
		known(true)
		assert.True(t, alpha())
	})
	deleted.PreConfig = func() {
		tryArena(t, platform.Kubeconfig, "delete vgg16", "")
		tryArena(t, platform.Kubeconfig, "delete mnist", "")
		// What arena has done already, or where it is not built could not do.
		for framework, name := range map[job.Framework]string{job.MPI: "vgg16", job.PyTorch: "mnist"} {
			require.NoError(t, client.Delete(t.Context(), framework.GVK(), "default", name))
		}
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: acctest.Providers(),
		Steps: []resource.TestStep{
			on(false, nil, plancheck.ResourceActionCreate, func() {
				known(false)
				before = identities(t, client)
				assert.Len(t, before, 9)
				assert.False(t, alpha())
			}),
			on(true, nil, plancheck.ResourceActionUpdate, func() {
				known(true)
				assert.Equal(t, before, identities(t, client))
				assert.False(t, alpha(), "a job that runs stays what it is")
			}),
			on(true, second, plancheck.ResourceActionDestroyBeforeCreate, func() {
				known(true)
				before = identities(t, client)
				assert.Len(t, before, 9)
				assert.True(t, alpha())
				_, err := client.Typed.BatchV1().Jobs("default").Get(t.Context(), "vgg16-launcher", metav1.GetOptions{})
				require.NoError(t, err)
				acctest.AssertPredicted(t, client, job.MPI.GVK(), "vgg16")
				for command, says := range map[string]string{
					"list":                     "vgg16  RUNNING  MPIJOB",
					"get vgg16 --type mpijob":  "vgg16-worker-3 ",
					"get mnist":                "mnist-worker-0 ",
					"logs vgg16 --type mpijob": "This pod is simulated by gpuplan-local",
					"logs mnist":               "This pod is simulated by gpuplan-local",
					"top job":                  "mnist  RUNNING  PYTORCHJOB",
				} {
					tryArena(t, platform.Kubeconfig, command, says)
				}
			}),
			on(false, second, plancheck.ResourceActionUpdate, func() {
				known(false)
				assert.Equal(t, before, identities(t, client))
				assert.True(t, alpha())
			}),
			on(true, second, plancheck.ResourceActionUpdate, func() {
				known(true)
				assert.Equal(t, before, identities(t, client))
			}),
			deleted,
		},
	})
}

// A switch that breaks off is planned again, whichever way: the job's own label is written last.
func TestArenaSwitchThatBreaksOff(t *testing.T) {
	cloud := acctest.StartCloud(t)
	serveJobs(cloud)
	cli := acctest.StartCLI(t)
	write := func(arena bool) {
		cli.Write(t, fmt.Sprintf(`
resource "gpuplan_training_job" "a" {
  name             = "a"
  framework        = "pytorch"
  image            = "train:1"
  placement_check  = "off"
  wait_for         = "none"
  arena_compatible = %t
  roles            = { worker = { replicas = 1, gpus = 1 } }
}
`, arena))
	}
	write(false)
	cli.Apply(t, 1, 0, 0)
	pod := acctest.GangPod("a", "a-worker-0", "n1", 0)
	pod.Labels[contract.JobNameLabel], pod.Labels[contract.JobOperatorNameLabel] = "a", job.PyTorch.Operators()[0]
	cloud.Put(t, pod)
	for _, arena := range []bool{true, false} {
		write(arena)
		cloud.Meanwhile(t, "pods", func() { panic(http.ErrAbortHandler) })
		said, err := cli.Run("apply", "-auto-approve")
		require.Error(t, err, said)
		cli.Apply(t, 0, 1, 0)
		assert.Contains(t, cli.Must(t, "plan"), "No changes")
		marked, err := cloud.Kube.Typed.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, arena, marked.Labels[contract.ArenaReleaseLabel] != "")
		_, err = cloud.Kube.Get(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "default", "a-pytorchjob")
		assert.Equal(t, arena, err == nil)
	}
}

// A ConfigMap of others that has the name of arena's for the job is refused at plan, and never changed or deleted.
func TestConfigMapOfOthers(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for name, owners := range map[string][]metav1.OwnerReference{
		"nobody's":      nil,
		"another job's": {{APIVersion: "kubeflow.org/v1", Kind: contract.PyTorchJobKind, Name: "b", UID: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := acctest.StartCloud(t)
			serveJobs(cloud)
			cli := acctest.StartCLI(t)
			config := func(check string, arena bool) string {
				return fmt.Sprintf(`
resource "gpuplan_training_job" "a" {
  name             = "a"
  framework        = "pytorch"
  image            = "train:1"
  suspend          = true
  placement_check  = %q
  wait_for         = "none"
  arena_compatible = %t
  roles            = { worker = { replicas = 1, gpus = 1 } }
}
`, check, arena)
			}
			theirs := &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-pytorchjob", OwnerReferences: owners},
				Data:       map[string]string{"settings": "theirs"},
			}
			left := func() {
				t.Helper()
				live, err := cloud.Kube.Typed.CoreV1().ConfigMaps("default").Get(t.Context(), theirs.Name, metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, theirs.Data, live.Data)
				assert.Equal(t, owners, live.OwnerReferences)
			}
			refused := regexp.MustCompile("ConfigMap exists already")
			cloud.Put(t, theirs)
			cli.Refuses(t, config("error", true), refused)
			cli.Write(t, config("off", true))
			assert.Contains(t, cli.Must(t, "apply", "-auto-approve"), "Job was created, but arena does not know it")
			left()
			cli.Must(t, "destroy", "-auto-approve")
			left()

			cli.Write(t, config("off", false))
			cli.Must(t, "apply", "-auto-approve")
			cli.Refuses(t, config("error", true), refused)
			cli.Write(t, config("off", true))
			said, err := cli.Run("apply", "-auto-approve")
			require.Error(t, err)
			assert.Contains(t, acctest.Unwrapped(said), "ConfigMap default/a-pytorchjob is not the job's"+job.Whose(owners)+", and stays as it is")
			left()

			cloud.API.Remove(kind, "default", theirs.Name)
			cli.Must(t, "apply", "-auto-approve")
			_, err = cloud.Kube.Get(t.Context(), kind, "default", theirs.Name)
			require.NoError(t, err, "arena knows the job")
			cloud.API.Remove(kind, "default", theirs.Name)
			cloud.Put(t, theirs)
			cli.Write(t, config("off", false))
			cli.Must(t, "apply", "-auto-approve")
			left()
		})
	}
}

// tryArena runs a command of the real arena, where it is built, until it says what it should.
func tryArena(t *testing.T, kubeconfig, command, says string) {
	t.Helper()
	program, err := filepath.Abs("../../../bin/arena")
	require.NoError(t, err)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		t.Logf("arena %s is not tried; make bin/arena builds it in about 5 minutes", command)
		return
	}
	home := filepath.Join(filepath.Dir(program), "arena-home")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		line := exec.CommandContext(t.Context(), program, append([]string{"-n", "default"}, strings.Fields(command)...)...)
		line.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+kubeconfig, "PATH="+home+string(filepath.ListSeparator)+os.Getenv("PATH"))
		output, err := line.CombinedOutput()
		require.NoError(c, err, "arena %s\n%s", command, output)
		assert.Contains(c, string(output), says)
	}, time.Minute, time.Second)
}
