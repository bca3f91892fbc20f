package localtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube/follow"
)

var (
	fleetSeed   = flag.Uint64("fleet.seed", 1, "seed of the chaos of a fleet")
	fleetFaults = flag.Int("fleet.faults", 6, "number of faults in the chaos of a fleet")
)

// fleetJobs is how many jobs there are at most while faults happen.
const fleetJobs = 5

var fleetClusters = schema.GroupVersionResource{Group: contract.KarmadaClusterGroup, Version: contract.KarmadaClusterVersion, Resource: contract.KarmadaClusterResource}

var pyTorchJobs = schema.GroupVersionResource{Group: contract.KubeflowGroup, Version: contract.KubeflowVersion, Resource: contract.PyTorchJobResource}

// witness sees which gangs have nodes in which cluster, and what is wrong with that at any moment.
type witness struct {
	mu sync.Mutex
	// at are the bound pods of each gang that have not ended, by gang, cluster and pod.
	at map[string]map[string]map[string]bool
	// were are the clusters in which any were.
	were  map[string]bool
	wrong []string
}

func newWitness(t *testing.T, clusters map[string]*kube.Client) *witness {
	t.Helper()
	w := &witness{at: map[string]map[string]map[string]bool{}, were: map[string]bool{}}
	for name, client := range clusters {
		w.watch(t, name, client)
	}
	return w
}

// watch follows the pods of a cluster. What is missed while its API server is away shows when it is back.
func (w *witness) watch(t *testing.T, cluster string, client *kube.Client) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client.Typed, 0, informers.WithNamespace("default"))
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(follow.On(
		func(pod *corev1.Pod) { w.set(cluster, pod, pod.Spec.NodeName != "" && !inventory.Finished(pod)) },
		func(pod *corev1.Pod) { w.set(cluster, pod, false) }))
	require.NoError(t, err)
	factory.Start(t.Context().Done())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), factory.Core().V1().Pods().Informer().HasSynced))
}

func (w *witness) set(cluster string, pod *corev1.Pod, bound bool) {
	gang := pod.Labels[contract.JobNameLabel]
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at[gang] == nil {
		w.at[gang] = map[string]map[string]bool{}
	}
	if w.at[gang][cluster] == nil {
		w.at[gang][cluster] = map[string]bool{}
	}
	if !bound {
		delete(w.at[gang][cluster], pod.Name)
		return
	}
	w.at[gang][cluster][pod.Name], w.were[cluster] = true, true
	for other, pods := range w.at[gang] {
		if other != cluster && len(pods) > 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("gang %s has %d pods in %s, and one in %s", gang, len(pods), other, cluster))
		}
	}
}

// TestFleetChaos makes and deletes gangs on a hub while faults happen: its programs, and those of its two member clusters, are killed or
// hang, the hub too, and the links from the hub to the members are cut for up to a minute. At no moment a gang has pods in two clusters:
// by watches, and by the audit logs of the members' API servers. In the end, without help, each gang runs whole in one cluster, or waits
// whole, no place is kept for anybody, and what is deleted is gone. Where make fleet-chaos has built a scheduler for it, the clocks of the
// members' schedulers are wrong all the time, by ten minutes in both directions. The seed reproduces the faults, though not how long each step takes.
func TestFleetChaos(t *testing.T) {
	i, ahead := newInstance(t), map[string]time.Duration{}
	if programs := skewedPrograms(t, i.programs); programs != "" {
		i.programs, ahead = programs, clocks
	}
	hub, members := i.fleetOfTwo("--audit")
	w := newWitness(t, members)
	create(t, hub, gangPolicy)
	f := &faults{instance: i, hub: hub, random: rand.New(rand.NewPCG(*fleetSeed, 0)), links: map[string]*link{}, dirs: map[string]string{}}
	for name, client := range members {
		f.links[name] = newLink(t, strings.TrimPrefix(client.Config.Host, "https://"))
		f.dirs[name] = filepath.Join(i.dir, "clusters", name)
	}
	f.lead()
	jobs := hub.Dynamic.Resource(pyTorchJobs).Namespace("default")
	there, made := map[string]int{}, 0
	turnover := func() {
		for more := true; more && len(there) < fleetJobs; more = f.random.IntN(4) > 0 {
			made++
			name, gpus := fmt.Sprintf("job-%d", made), 1+f.random.IntN(2)
			create(t, hub, gangOf(name, gpus))
			there[name] = gpus
		}
		for _, name := range slices.Sorted(maps.Keys(there)) {
			if f.random.IntN(4) == 0 {
				require.NoError(t, jobs.Delete(t.Context(), name, metav1.DeleteOptions{}))
				delete(there, name)
			}
		}
	}
	for fault := range *fleetFaults {
		turnover()
		time.Sleep(time.Duration(f.random.IntN(2500)) * time.Millisecond) // somewhere between the phases
		t.Logf("fault %d: %s", fault, f.strike())
	}

	eventually(t, "all members are ready, and each gang runs or waits, whole", func() error {
		for name, link := range f.links {
			if !link.whole() {
				return fmt.Errorf("the link to %s is cut", name)
			}
		}
		for _, member := range i.status().Members {
			if !member.Joined {
				return fmt.Errorf("%+v", i.status().Members)
			}
		}
		return settled(t, hub, members, there)
	})
	running := 0
	w.mu.Lock()
	for name := range there {
		for _, pods := range w.at[name] {
			running += len(pods) / 3
		}
	}
	w.mu.Unlock()
	t.Logf("%d jobs, %d faults; %d are left, of which %d run", made, *fleetFaults, len(there), running)
	for name := range there {
		require.NoError(t, jobs.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	eventually(t, "nothing is left in the members", func() error {
		for name, member := range members {
			pods, err := member.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) > 0 {
				return fmt.Errorf("%s has %d pods: %w", name, len(pods.Items), err)
			}
			kept, err := member.Dynamic.Resource(gangReservations).List(t.Context(), metav1.ListOptions{})
			if err != nil || len(kept.Items) > 0 {
				return fmt.Errorf("%s keeps places of %d jobs: %w", name, len(kept.Items), err)
			}
		}
		return nil
	})
	w.mu.Lock()
	assert.Empty(t, w.wrong)
	w.mu.Unlock()

	all, late := auditOf(t, f.dirs, ahead)
	ran := map[string]bool{}
	for _, s := range all {
		ran[s.gang] = true
	}
	longest := time.Duration(0)
	for reservation, by := range late {
		assert.Less(t, by, longestFault+lateBy, "%s was kept when its time was over", reservation)
		longest = max(longest, by)
	}
	t.Logf("by the audit logs %d pods of %d gangs had nodes; %d reservations were shown as kept after their time, for %s at most", len(all), len(ran), len(late), longest)
	assert.NotEmpty(t, all)
	assert.Empty(t, together(all))
	i.must("down", "--purge")
}

const (
	// longestFault is how long a fault lasts at most, and longestHang how long a program hangs that is not the hub.
	longestFault, longestHang = 60 * time.Second, 17 * time.Second
	// lateBy is how long a scheduler that starts may take to say that the time of a reservation is over.
	lateBy = 30 * time.Second
)

// clocks are by how much those of the members' schedulers are ahead.
var clocks = map[string]time.Duration{"member-1": 10 * time.Minute, "member-2": -10 * time.Minute}

// skewedPrograms is a folder with all programs in which the schedulers of members have wrong clocks, "" where a scheduler that has one
// was not built.
func skewedPrograms(t *testing.T, programs string) string {
	t.Helper()
	folder := t.TempDir()
	skewed := filepath.Join(programs, "skewed", contract.SchedulerName)
	if _, err := os.Stat(skewed); err != nil {
		t.Log("all clocks are right: make fleet-chaos builds a scheduler that has a wrong one")
		return ""
	}
	files, err := os.ReadDir(programs)
	require.NoError(t, err)
	for _, file := range files {
		if file.Name() != contract.SchedulerName {
			require.NoError(t, os.Symlink(filepath.Join(programs, file.Name()), filepath.Join(folder, file.Name())))
		}
	}
	script := "#!/bin/sh\ncase $PWD in\n"
	for _, name := range slices.Sorted(maps.Keys(clocks)) {
		script += fmt.Sprintf("*/%s/*) CLOCK_SKEW=%.0f exec %s \"$@\" ;;\n", name, clocks[name].Seconds(), skewed)
	}
	script += fmt.Sprintf("*) exec %s \"$@\" ;;\nesac\n", filepath.Join(programs, contract.SchedulerName))
	require.NoError(t, os.WriteFile(filepath.Join(folder, contract.SchedulerName), []byte(script), 0o700))
	return folder
}

// faults do harm to a fleet.
type faults struct {
	instance
	hub    *kube.Client
	random *rand.Rand
	// links are those from the hub to each member cluster, and dirs their data directories.
	links map[string]*link
	dirs  map[string]string
}

// lead has the hub use the links.
func (f *faults) lead() {
	f.t.Helper()
	for name, link := range f.links {
		patch := fmt.Sprintf(`{"spec":{"apiEndpoint":"https://%s"}}`, link.address)
		_, err := f.hub.Dynamic.Resource(fleetClusters).Patch(f.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(f.t, err)
	}
	// Karmada follows a cluster at the address that it had first.
	require.NoError(f.t, syscall.Kill(f.running("gpuplan-karmada"), syscall.SIGKILL))
}

// running is the number of the process of a program, once it has one.
func (f *faults) running(name string) (pid int) {
	f.t.Helper()
	eventually(f.t, name+" runs", func() error {
		if pid = f.status().process(name); pid == 0 {
			return fmt.Errorf("%+v", f.status().Processes)
		}
		return nil
	})
	return pid
}

// between is a time of whole seconds.
func (f *faults) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.random.Int64N(int64((most-least)/time.Second)+1))*time.Second
}

// strike does one harm, and says which.
func (f *faults) strike() string {
	f.t.Helper()
	switch f.random.IntN(10) {
	case 0:
		return f.strikeHub()
	case 1, 2, 3:
		return f.cut()
	default:
		return f.strikeProgram()
	}
}

// strikeHub kills the hub, and the members with it, and starts all again, or has its API server and all that is in its process hang.
func (f *faults) strikeHub() string {
	f.t.Helper()
	pid := f.running("gpuplan-local")
	if f.random.IntN(2) == 0 {
		require.NoError(f.t, syscall.Kill(pid, syscall.SIGKILL))
		eventually(f.t, "the hub is gone", func() error {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("its process is there: %w", err)
			}
			return nil
		})
		f.must("up", "--members", "2", "--audit")
		f.lead()
		return "the hub and its members are killed, and start again"
	}
	hangs := f.between(5*time.Second, longestFault)
	f.hang(pid, hangs)
	return fmt.Sprintf("the hub hangs for %s", hangs)
}

// cut cuts the link to a member for a while, through which other faults happen, or does another harm where it is cut already.
func (f *faults) cut() string {
	f.t.Helper()
	name := slices.Sorted(maps.Keys(f.links))[f.random.IntN(len(f.links))]
	state := []string{linkClosed, linkSilent, linkDeaf}[f.random.IntN(3)]
	lasts, lost := f.between(5*time.Second, longestFault), f.random.IntN(2) == 0
	link := f.links[name]
	if !link.whole() {
		return f.strikeProgram()
	}
	link.set(state, false)
	time.AfterFunc(lasts, func() { link.set(linkOpen, lost) })
	return fmt.Sprintf("the link to %s is %s for %s; what is on its way is lost: %t", name, state, lasts, lost)
}

// strikeProgram kills a program, or has it hang.
func (f *faults) strikeProgram() string {
	f.t.Helper()
	victims := []string{contract.FleetSchedulerName, contract.FleetSchedulerName, "gpuplan-karmada", contract.FleetQueueName, "member-1", "member-2"}
	for _, p := range f.status().Processes {
		if strings.Contains(p.Name, " gpuplan-system.gpuplan-scheduler-") {
			victims = append(victims, p.Name)
		}
	}
	slices.Sort(victims)
	name := victims[f.random.IntN(len(victims))]
	pid := f.running(name)
	if f.random.IntN(2) == 0 {
		require.NoError(f.t, syscall.Kill(pid, syscall.SIGKILL))
		return name + " is killed"
	}
	hangs := f.between(3*time.Second, longestHang)
	f.hang(pid, hangs)
	return fmt.Sprintf("%s hangs for %s", name, hangs)
}

// hang stops a process for a while.
func (f *faults) hang(pid int, lasts time.Duration) {
	f.t.Helper()
	require.NoError(f.t, syscall.Kill(pid, syscall.SIGSTOP))
	time.Sleep(lasts)
	require.NoError(f.t, syscall.Kill(pid, syscall.SIGCONT))
}

// settled says what is wrong with the gangs of a fleet, of which each has all of its pods on nodes of one cluster, or none and no room in
// any, once nothing happens any more. there are the jobs with the GPUs of each of their three pods.
func settled(t *testing.T, hub *kube.Client, members map[string]*kube.Client, there map[string]int) error {
	t.Helper()
	bound, free := map[string]int{}, map[string]int{}
	for cluster, client := range members {
		free[cluster] = 8
		pods, err := client.Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			name := pod.Labels[contract.JobNameLabel]
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("pod %s has no node in %s", pod.Name, cluster)
			}
			bound[name]++
			free[cluster] -= there[name]
		}
	}
	var wrong []error
	for name, gpus := range there {
		binding, err := hub.Dynamic.Resource(bindings).Namespace("default").Get(t.Context(), name+"-pytorchjob", metav1.GetOptions{})
		if err != nil {
			return err
		}
		clusters, _, err := unstructured.NestedSlice(binding.Object, "spec", "clusters")
		conditions, _, _ := unstructured.NestedSlice(binding.Object, "status", "conditions")
		switch sent := len(clusters) > 0; {
		case err != nil:
			return err
		case sent && bound[name] != 3 || !sent && bound[name] != 0:
			wrong = append(wrong, fmt.Errorf("%s was sent to %v, and has %d pods: %v", name, clusters, bound[name], conditions))
		case sent:
		case slices.Max(slices.Collect(maps.Values(free))) >= 3*gpus:
			wrong = append(wrong, fmt.Errorf("%s waits, and needs %d of %v GPUs that are free: %v", name, 3*gpus, free, conditions))
		}
	}
	return errors.Join(wrong...)
}

// A gang goes to the other cluster where it has failed, or waits, for longer than its policy tolerates, and never runs in both.
func TestFleetFailover(t *testing.T) {
	i, hub, members := fleetOfTwo(t)
	create(t, hub, strings.Replace(gangPolicy, "tolerationSeconds: 30", "tolerationSeconds: 2", 1))
	for name, test := range map[string]struct {
		edit func(manifest string) string
		// then is what happens once the gang runs in a cluster.
		then func(t *testing.T, member *kube.Client)
		// tells means that the scheduler of the fleet takes it out of there, and not Karmada.
		tells bool
	}{
		"fails": {
			edit: strings.NewReplacer(
				"metadata: {labels:", "metadata: {annotations: {"+contract.FailAfterAnnotation+": 8s}, labels:",
				"      template:", "      restartPolicy: Never\n      template:",
			).Replace,
			then: func(*testing.T, *kube.Client) {},
		},
		"waits": {
			edit: func(manifest string) string { return manifest },
			then: func(t *testing.T, member *kube.Client) { // one member is lost, and finds no place
				nodes, err := member.Typed.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: contract.NodeModeLabel})
				require.NoError(t, err)
				cordon := func(ctx context.Context, unschedulable bool) {
					for _, node := range nodes.Items {
						_, err := member.Typed.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable), metav1.PatchOptions{})
						assert.NoError(t, err)
					}
				}
				cordon(t.Context(), true)
				t.Cleanup(func() { cordon(context.Background(), false) })
				require.NoError(t, member.Typed.CoreV1().Pods("default").Delete(t.Context(), "waits-worker-1", metav1.DeleteOptions{}))
			},
			tells: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWitness(t, members)
			job := create(t, hub, test.edit(gangOf(name, 1)))[0]
			runs := func(not string) (in string) {
				t.Helper()
				eventually(t, "the gang runs, and not in "+not, func() error {
					w.mu.Lock()
					defer w.mu.Unlock()
					for cluster, pods := range w.at[name] {
						if cluster != not && len(pods) == 3 {
							in = cluster
							return nil
						}
					}
					return fmt.Errorf("%v", w.at)
				})
				return in
			}
			from := runs("")
			test.then(t, members[from])
			runs(from)
			events, err := hub.Typed.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=WithdrawnFromCluster,involvedObject.kind=PyTorchJob,involvedObject.name=" + name})
			require.NoError(t, err)
			assert.Equal(t, test.tells, len(events.Items) > 0, "%v", events.Items)

			// Karmada creates it late in the cluster that it has left, as it may by what it has read before.
			late := create(t, members[from], gangOf(name, 1))[0]
			eventually(t, "what comes late waits", func() error {
				pods, err := members[from].Typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: contract.JobNameLabel + "=" + name})
				if err != nil {
					return err
				}
				var said []string
				for _, pod := range pods.Items {
					for _, condition := range pod.Status.Conditions {
						if pod.Spec.NodeName == "" && strings.Contains(condition.Message, "the job has left this cluster") {
							said = append(said, pod.Name)
						}
					}
				}
				if len(said) != 3 {
					return fmt.Errorf("%v of %d pods are told so", said, len(pods.Items))
				}
				return nil
			})
			assert.Contains(t, i.plugin("gangs"), "the job has left this cluster")
			require.NoError(t, members[from].DeleteObject(t.Context(), late))
			w.mu.Lock()
			assert.Empty(t, w.wrong)
			w.mu.Unlock()
			require.NoError(t, hub.DeleteObject(t.Context(), job))
		})
	}
	i.must("down", "--purge")
}

// Who removes a cluster from a fleet has its gangs go to another one: out of one that answers once nothing of them is left there, out of one
// that does not at his word. The cluster goes, too.
func TestFleetWithoutACluster(t *testing.T) {
	for name, hangs := range map[string]bool{"that answers": false, "that is lost": true} {
		t.Run(name, func(t *testing.T) {
			i, hub, members := fleetOfTwo(t)
			w := newWitness(t, members)
			create(t, hub, gangPolicy)
			create(t, hub, gangOf("moves", 1))
			in := func(not string) (cluster string) {
				t.Helper()
				eventually(t, "the gang runs in a cluster that is not "+not, func() error {
					w.mu.Lock()
					defer w.mu.Unlock()
					for name, pods := range w.at["moves"] {
						if name != not && len(pods) == 3 {
							cluster = name
							return nil
						}
					}
					return fmt.Errorf("%v", w.at)
				})
				return cluster
			}
			from := in("")
			pid := i.status().process(from)
			if hangs {
				require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			}
			clusters := hub.Dynamic.Resource(fleetClusters)
			require.NoError(t, clusters.Delete(t.Context(), from, metav1.DeleteOptions{}))
			in(from)
			eventually(t, "the cluster is gone", func() error {
				if _, err := clusters.Get(t.Context(), from, metav1.GetOptions{}); !kube.IsNotFound(err) {
					return fmt.Errorf("it is there: %w", err)
				}
				return nil
			})
			if hangs {
				require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
				return // what hung goes on there
			}
			w.mu.Lock()
			assert.Empty(t, w.wrong)
			w.mu.Unlock()
		})
	}
}
