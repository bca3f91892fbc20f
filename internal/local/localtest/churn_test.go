package localtest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/realnode"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/explain"
)

var (
	churnSeed = flag.Uint64("churn.seed", 1, "seed of the first run of the churn suite; the following runs have the following seeds")
	churnRuns = flag.Int("churn.runs", 2, "number of runs of the churn suite")
	churnPods = flag.Int("churn.pods", 12, "number of pods that a run of the churn suite makes")
)

const (
	// churnLive is how many pods there are at most.
	churnLive = 24
	// v100GiB is what a GPU of the nodes offers.
	v100GiB = 15
)

// TestRealChurn makes and deletes pods of all kinds at random on real nodes, and kills agents, kubelets, containerd, the scheduler
// and containers in between. Whenever all is quiet, what each container of a pod has, the pod's record and the scheduler's books
// are the same. At no time do two processes have the same GPU, or more than a GPU together. A run's seed reproduces what it does,
// though not how long each step takes.
func TestRealChurn(t *testing.T) {
	t.Parallel()
	port := localtest.FreePort(t)
	var pools []acs.NodePoolSpec
	for _, mode := range churnModes {
		pool := v100Pool(mode, 1)
		pool.KubernetesConfig.Labels[0].Value = mode
		pools = append(pools, pool)
	}
	i, _ := realNodes(t, true, scheduler.Options{Port: port}, pools...)
	c := &churn{instance: i, client: i.client(), answers: fmt.Sprintf("https://127.0.0.1:%d/gpuplan/map", port+1), refused: map[string]bool{}, restarts: map[string]int{}}
	var err error
	c.nodes, err = realnode.List(datadir.Dir(i.dir))
	require.NoError(t, err)
	require.Len(t, c.nodes, len(churnModes))
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), c.nodes[0].Name, metav1.GetOptions{})
	require.NoError(t, err)
	if oldContainerd(node) {
		t.Skipf("%s cannot be told the GPUs of containers", node.Status.NodeInfo.ContainerRuntimeVersion)
	}
	for _, pool := range churnModes {
		for _, node := range nodesOf(t, c.client, pool) {
			for name, want := range map[string]map[corev1.ResourceName]int64{
				"topology": {contract.ResourceTopologyGPU: 8},
				"share":    {contract.ResourceGPUMemory: 8 * v100GiB},
				"core_mem": {contract.ResourceGPUMemory: 8 * v100GiB, contract.ResourceCorePercent: 800},
			}[pool] {
				eventually(t, "the agent offers GPUs in mode "+pool, func() error { return offers(c.client, node.Name, name, want) })
			}
		}
	}
	for run := range *churnRuns {
		seed := *churnSeed + uint64(run)
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c.t = t
			defer func() { c.t = i.t }()
			c.run(seed)
		})
		if !ok {
			t.Fatalf("seed %d fails; the same again: make churn SEED=%d PODS=%d", seed, seed, *churnPods)
		}
	}
	t.Log(c)
	assert.Greater(t, c.compared, c.made, "most containers were compared")
}

// churn is what a run knows.
type churn struct {
	instance
	client kubernetes.Interface
	nodes  []realnode.Node
	// answers is where the scheduler tells its books.
	answers string
	rand    *rand.Rand
	// live are the names of the pods that were not deleted.
	live []string

	made, compared, quiet int
	// refused are the pods that a kubelet has refused, restarts what was killed how often.
	refused  map[string]bool
	restarts map[string]int
}

func (c *churn) String() string {
	return fmt.Sprintf("%d pods made, of which kubelets refused %d; quiet %d times, %d containers compared, no mismatch; killed: %v",
		c.made, len(c.refused), c.quiet, c.compared, c.restarts)
}

// churnModes are the modes of the nodes, one each.
var churnModes = []string{"topology", "share", "core_mem"}

func (c *churn) run(seed uint64) {
	c.rand = rand.New(rand.NewPCG(seed, 0))
	for n := 0; n < *churnPods; {
		for range c.rand.IntN(len(c.live) + 1) {
			c.deleteOne()
		}
		breakAt := c.rand.IntN(8) // nothing breaks in some rounds
		for at := range 2 + c.rand.IntN(10) {
			if at == breakAt {
				c.breakOne()
			}
			if n == *churnPods || len(c.live) == churnLive {
				break
			}
			pod := c.draw(fmt.Sprintf("p%d-%d", seed, n))
			_, err := c.client.CoreV1().Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{})
			require.NoError(c.t, err)
			c.live = append(c.live, pod.Name)
			n++
			c.made++
			if c.rand.IntN(6) == 0 {
				c.deleteOne() // perhaps while it starts
			}
		}
		c.settle()
	}
	for len(c.live) > 0 {
		c.deleteOne()
	}
	c.settle()
}

func (c *churn) deleteOne() {
	at := c.rand.IntN(len(c.live))
	name := c.live[at]
	c.live = slices.Delete(c.live, at, at+1)
	require.NoError(c.t, c.client.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{}))
}

// draw is a pod of any kind.
func (c *churn) draw(name string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	mode := churnModes[c.rand.IntN(len(churnModes))]
	container := func(name string, most int) corev1.Container {
		made := asking(name, 0)
		made.Resources.Limits = corev1.ResourceList{}
		amount := int64(c.rand.IntN(most + 1))
		switch {
		case amount == 0:
		case mode == "topology":
			made.Resources.Limits[contract.ResourceTopologyGPU] = *resource.NewQuantity(amount, resource.DecimalSI)
		default:
			made.Resources.Limits[contract.ResourceGPUMemory] = *resource.NewQuantity(2*amount, resource.DecimalSI)
			if mode == "core_mem" {
				made.Resources.Limits[contract.ResourceCorePercent] = *resource.NewQuantity(int64(5+5*c.rand.IntN(6)), resource.DecimalSI)
			}
		}
		return made
	}
	containers := []corev1.Container{container("a", 3)}
	for _, name := range []string{"b", "c"}[:c.rand.IntN(3)] {
		containers = append(containers, container(name, 2))
	}
	if c.rand.IntN(3) == 0 && mode != "core_mem" { // no part of cores is for an init container
		containers = append(containers, container("init", 3))
	}
	pod := allocationPod(name, containers...)
	grace := int64(1)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	if c.rand.IntN(4) == 0 {
		sidecar := container("sidecar", 2)
		sidecar.RestartPolicy = &always
		pod.Spec.InitContainers = slices.Insert(pod.Spec.InitContainers, c.rand.IntN(len(pod.Spec.InitContainers)+1), sidecar)
	}
	if mode == "share" && len(pod.Spec.Containers) == 1 && len(pod.Spec.InitContainers) == 0 && c.rand.IntN(3) == 0 {
		pod.Labels = map[string]string{contract.ResourceGPUCount: "2"} // 2, 4 or 6 GiB over two GPUs
	}
	return pod
}

// breakOne kills a program, or a container of a pod.
func (c *churn) breakOne() {
	node := c.nodes[c.rand.IntN(len(c.nodes))]
	name := []string{"agent", "kubelet", "containerd", "scheduler", "container"}[c.rand.IntN(5)]
	var pid int
	switch name {
	case "agent":
		pid = c.process(contract.NodeAgentName, node.Name)
	case "scheduler":
		pid = c.process(contract.SchedulerName, "")
	case "kubelet":
		pid = c.kubelet(node)
	case "containerd":
		pid = c.programOf(node, "containerd --config ")
	case "container":
		for _, p := range c.containers() {
			if p.slot == filepath.Base(node.Dir) {
				pid = p.pid
				break
			}
		}
	}
	if pid == 0 {
		return // none runs, as after the time before
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
		c.restarts[name]++
	}
}

// process is the number of the process of a program's pod, on a node or on any.
func (c *churn) process(name, node string) int {
	pods, err := c.client.CoreV1().Pods("").List(c.t.Context(), metav1.ListOptions{LabelSelector: contract.NameLabel + "=" + name})
	require.NoError(c.t, err)
	for _, pod := range pods.Items {
		if node != "" && pod.Spec.NodeName != node || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "process://"))
		if err == nil {
			return pid
		}
	}
	return 0
}

// settle waits until nothing happens any more, and compares.
func (c *churn) settle() {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		c.notTwice()
		err := c.compare()
		if err == nil {
			if c.quiet++; c.quiet%10 == 0 {
				c.t.Log(c)
			}
			return
		}
		if time.Now().After(deadline) {
			require.NoError(c.t, err, "what pods have, their records and the scheduler's books")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// compare complains while something happens, or when what pods have is not what their records and the scheduler say. It fails at once
// when a container has a GPU that is not its pod's.
func (c *churn) compare() error {
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != len(c.live) {
		return fmt.Errorf("there are %d pods, and %d were not deleted", len(pods.Items), len(c.live))
	}
	books, compared := map[string][]string{}, 0
	for _, pod := range pods.Items {
		switch {
		case pod.DeletionTimestamp != nil:
			return fmt.Errorf("%s is being deleted", pod.Name)
		case pod.Spec.NodeName == "":
			if !waits(pod) {
				return fmt.Errorf("%s has no node", pod.Name)
			}
			continue
		case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "UnexpectedAdmissionError":
			c.refused[pod.Name] = true // it came while the agent, or what the kubelet knows of its devices, was away
			continue
		}
		n, err := c.has(pod)
		if err != nil {
			return err
		}
		compared += n
		record, ok, err := contract.AllocationFrom(pod.Annotations)
		if err != nil || !ok && asksForGPUs(pod.Spec) {
			return fmt.Errorf("%s has no record: %w", pod.Name, err)
		}
		for _, index := range record.GPUs {
			at := fmt.Sprintf("%s/%d", pod.Spec.NodeName, index)
			books[at] = append(books[at], "default/"+pod.Name)
		}
		for _, share := range record.Shares {
			at := fmt.Sprintf("%s/%d", pod.Spec.NodeName, share.GPU)
			books[at] = append(books[at], fmt.Sprintf("default/%s %d GiB %d %%", pod.Name, share.MemoryGiB, share.CorePercent))
		}
	}
	scheduled, err := c.books()
	if err != nil {
		return err
	}
	for _, list := range books {
		slices.Sort(list)
	}
	if !maps.EqualFunc(books, scheduled, slices.Equal) {
		return fmt.Errorf("the scheduler counts %v, and the records say %v", scheduled, books)
	}
	c.compared += compared
	return nil
}

// waits tells whether the scheduler has said that a pod does not fit.
func waits(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
	})
}

// has compares what the containers of a pod say that they have with what they ask for, the pod's record, and what the agent confirms;
// it returns how many containers have GPUs.
func (c *churn) has(pod corev1.Pod) (containers int, err error) {
	statuses := map[string]corev1.ContainerStatus{}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		statuses[status.Name] = status
	}
	record, _, err := contract.AllocationFrom(pod.Annotations)
	require.NoError(c.t, err)
	confirmation, _, err := contract.ConfirmationFrom(pod.Annotations)
	require.NoError(c.t, err)
	left := map[string]contract.GPUShare{} // what no container has of the record
	for _, index := range record.GPUs {
		left[strconv.Itoa(index)] = contract.GPUShare{GPU: index}
	}
	for _, share := range record.Shares {
		left[strconv.Itoa(share.GPU)] = share
	}
	whole, peak := len(record.GPUs) > 0, false
	for at, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		plainInit := at < len(pod.Spec.InitContainers) && container.RestartPolicy == nil
		status := statuses[container.Name]
		if plainInit && status.State.Terminated == nil || !plainInit && status.State.Running == nil {
			return 0, fmt.Errorf("container %s of %s does not run: %+v", container.Name, pod.Name, status.State)
		}
		log, err := c.client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Container: container.Name}).DoRaw(c.t.Context())
		if err != nil {
			return 0, err
		}
		if !bytes.Contains(log, []byte("in the place of:")) {
			return 0, fmt.Errorf("container %s of %s has not said what it has", container.Name, pod.Name)
		}
		var given []string
		if match := givenGPUs.FindSubmatch(log); match != nil {
			given = strings.Split(string(match[1]), ",")
			containers++
		}
		what := fmt.Sprintf("container %s of %s has %v; record %+v", container.Name, pod.Name, given, record)
		for _, gpu := range given {
			require.Contains(c.t, slices.Concat(indexes(record), nil), gpu, "%s", what)
		}
		confirmed, ok := confirmation.Containers[container.Name]
		if plainInit && !ok && len(given) > 0 && c.restarts["agent"]+c.restarts["containerd"] > 0 {
			peak = true
			continue // it was made while either was away, and had ended when both were back: the runtime tells of those that run
		}
		if !slices.Equal(confirmed.GPUs, given) {
			return 0, fmt.Errorf("%s; confirmed %+v", what, confirmed) // it is confirmed after the container was made
		}
		gpus, memory, cores := container.Resources.Limits[contract.ResourceTopologyGPU], container.Resources.Limits[contract.ResourceGPUMemory], container.Resources.Limits[contract.ResourceCorePercent]
		if whole {
			require.Len(c.t, given, int(gpus.Value()), "%s", what)
		}
		var sum contract.GPUShare
		for n, share := range confirmed.Shares {
			require.Equal(c.t, given[n], strconv.Itoa(share.GPU), "%s", what)
			sum.MemoryGiB, sum.CorePercent = sum.MemoryGiB+share.MemoryGiB, sum.CorePercent+share.CorePercent
		}
		require.Equal(c.t, contract.GPUShare{MemoryGiB: memory.Value(), CorePercent: cores.Value()}, sum, "%s, confirmed %+v", what, confirmed)
		if plainInit { // its GPUs are others' later
			peak = true
			continue
		}
		for n, gpu := range given {
			rest, ok := left[gpu]
			require.True(c.t, ok, "%s, and another container has GPU %s, too", what, gpu)
			if whole {
				delete(left, gpu)
				continue
			}
			share := confirmed.Shares[n]
			rest.MemoryGiB, rest.CorePercent = rest.MemoryGiB-share.MemoryGiB, rest.CorePercent-share.CorePercent
			require.GreaterOrEqual(c.t, min(rest.MemoryGiB, rest.CorePercent), int64(0), "%s: the containers together have more", what)
			if left[gpu] = rest; rest.MemoryGiB == 0 && rest.CorePercent == 0 {
				delete(left, gpu)
			}
		}
	}
	if given, ok := inventory.GivenTo(&pod); containers > 0 && !peak {
		require.True(c.t, ok && given.Whole && given.Differs(record) == "", "%s: confirmed %+v, record %+v", pod.Name, confirmation, record)
	}
	if !peak { // of what an init container needs the others may need less
		require.Empty(c.t, left, "%s: no container has all of its record %+v", pod.Name, record)
	}
	return containers, nil
}

// indexes are the GPUs of a record.
func indexes(record contract.Allocation) (list []string) {
	for _, index := range record.GPUs {
		list = append(list, strconv.Itoa(index))
	}
	for _, share := range record.Shares {
		list = append(list, strconv.Itoa(share.GPU))
	}
	return list
}

func asksForGPUs(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool { return len(c.Resources.Limits) > 0 })
}

// books are the pods on each GPU, by node and index, as the scheduler counts them.
func (c *churn) books() (map[string][]string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
	require.NoError(c.t, err)
	// The scheduler signs its certificate itself.
	config.CAData, config.CAFile, config.Insecure = nil, "", true
	client, err := rest.HTTPClientFor(config)
	require.NoError(c.t, err)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.answers, nil)
	require.NoError(c.t, err)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("the scheduler answers %s: %s", response.Status, text)
	}
	var answer explain.GPUMap
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	books := map[string][]string{}
	for _, pool := range answer.Pools {
		for _, node := range pool.Nodes {
			for _, gpu := range node.GPUs {
				for _, holder := range gpu.Holders {
					text := holder.Pod
					if holder.MemoryGiB > 0 || holder.CorePercent > 0 {
						text += fmt.Sprintf(" %d GiB %d %%", holder.MemoryGiB, holder.CorePercent)
					}
					at := fmt.Sprintf("%s/%d", node.Name, gpu.Index)
					books[at] = append(books[at], text)
				}
			}
		}
	}
	for _, list := range books {
		slices.Sort(list)
	}
	return books, nil
}

// gpuProcess is the first process of a container with GPUs, by what the kernel has of it.
type gpuProcess struct {
	pid int
	// started tells it from another of the same number.
	started string
	// slot is the directory of its node, gpus what it has, and memoryGiB how much of each, 0 for all.
	slot      string
	gpus      []string
	memoryGiB int
}

// containers are the processes that have GPUs now, on all nodes.
func (c *churn) containers() (processes []gpuProcess) {
	identity := realnode.Identity(datadir.Dir(c.dir))
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(c.t, err)
	for _, file := range files {
		text, err := os.ReadFile(file) // those that end meanwhile have none
		if err != nil || !bytes.Contains(text, []byte(contract.GivenGPUsEnv+"=")) {
			continue
		}
		p := gpuProcess{}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		cgroup, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup"))
		_, below, ok := strings.Cut(string(cgroup), "/"+identity+"/")
		if !ok {
			continue
		}
		p.slot, _, _ = strings.Cut(below, "/")
		p.started = startOf(p.pid)
		for variable := range strings.SplitSeq(string(text), "\x00") {
			switch name, value, _ := strings.Cut(variable, "="); name {
			case contract.GivenGPUsEnv:
				p.gpus = strings.Split(value, ",")
			case contract.ShareMemoryEnv:
				p.memoryGiB, _ = strconv.Atoi(value)
			}
		}
		processes = append(processes, p)
	}
	return processes
}

// startOf is when a process was started, as the kernel writes it; "" for one that has ended.
func startOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// notTwice fails when processes have more of a GPU together than there is, whatever the cluster knows of them.
func (c *churn) notTwice() {
	c.t.Helper()
	on := map[string][]gpuProcess{}
	for _, p := range c.containers() {
		for _, gpu := range p.gpus {
			on[p.slot+"/"+gpu] = append(on[p.slot+"/"+gpu], p)
		}
	}
	for gpu, processes := range on {
		// Those that are still there have been there together.
		processes = slices.DeleteFunc(processes, func(p gpuProcess) bool { return p.started == "" || startOf(p.pid) != p.started })
		sum := 0
		for _, p := range processes {
			if p.memoryGiB == 0 {
				p.memoryGiB = v100GiB
			}
			sum += p.memoryGiB
		}
		require.LessOrEqual(c.t, sum, v100GiB, "GPU %s of node and index is given more than once: %+v", gpu, processes)
	}
}
