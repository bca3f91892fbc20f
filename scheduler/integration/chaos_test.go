package integration

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/localtest"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 1, "seed of the first chaos run; the following runs have the following seeds")
	chaosRuns = flag.Int("chaos.runs", 5, "number of chaos runs")
)

// TestChaos breaks things at random while gangs come and go, and checks by books of its
// own that no GPU is given twice, no gang stays bound in part, no launcher starts before
// its gang, no quota is exceeded, nobody is evicted in vain, or by no rule, and that everything
// settles when the breaking ends. What it breaks are programs, nodes, jobs, the records of GPUs, and
// the quota tree, under which nothing of its leaves starts while it is invalid; pods of others take
// GPUs, too. A run's seed reproduces what it does and when; with seed 1 the last is random, and printed.
func TestChaos(t *testing.T) {
	connect(t)
	seeds := make([]uint64, *chaosRuns)
	for i := range seeds {
		seeds[i] = *chaosSeed + uint64(i)
	}
	if n := len(seeds); *chaosSeed == 1 && n > 1 {
		seeds[n-1] = uint64(rand.Uint32())
	}
	met := map[string]int{}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run := newChaos(t, seed)
			run.play(t)
			run.settle(t)
			run.stop()
			violations, history := run.audit.report()
			summary, counts := run.audit.summary()
			t.Log(summary)
			for what, n := range counts {
				met[what] += n
			}
			if len(violations) > 0 || t.Failed() {
				t.Errorf("seed %d (-chaos.seed=%d -chaos.runs=1): %s\n%s", seed, seed, strings.Join(violations, "\n"), history)
				for _, s := range run.ended {
					t.Logf("scheduler %d:\n%s", s.Command.Process.Pid, s.Log)
				}
			}
		})
	}
	for what, n := range met {
		if len(seeds) >= manyRuns || what == evictionsMet && len(seeds) > 1 {
			require.NotZero(t, n, "no %s: the runs show nothing of that", what)
		}
	}
}

// chaos is one run.
type chaos struct {
	*world
	audit      *audit
	operator   operator
	namespace  string
	schedulers []*localtest.Process
	// queue is the queue controller, nil in a run without queued jobs.
	queue *localtest.Process
	// ended are all schedulers that have run.
	ended []*localtest.Process
	// kubeconfig, changes and flags are what schedulers are started with.
	kubeconfig string
	changes    map[string]string
	flags      []string
	// limits are the quota tree that is in force, wanted what it says.
	limits []*limit
	// reserves means that gangs of the run have waited long enough for a place to be held
	// for them, by the clock of the run's schedulers.
	reserves bool
	// urgent is the PriorityClass of the gangs that preempt others.
	urgent string
	// stale means that gangs which have lost members are evicted after a while.
	stale bool
	// records says what becomes of attempts to alter allocation records.
	records records
	// broken makes the quota tree invalid, nil while it is valid.
	broken func(leaf map[string]any)
	// claimed are the volume claims that have been made.
	claimed map[string]bool
	steps   []step
	dir     string
	count   int
	probes  int
}

// step is something that the run does at a time after its beginning.
type step struct {
	at time.Duration
	do func(*testing.T)
}

// manyRuns are so many that something of everything happens in them.
const manyRuns = 30

// chaosSettled bounds how long everything may take to settle after a run.
const chaosSettled = 2 * time.Minute

// load is how long a run submits and breaks.
const load = 1500 * time.Millisecond

// staleAfter is when gangs of a run that have lost members are evicted.
const staleAfter = 500 * time.Millisecond

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{world: &world{Rand: random, id: fmt.Sprintf("run%d", seed)}, operator: operator{jobs: map[string]worldGang{}}, claimed: map[string]bool{}, dir: t.TempDir()}
	namespace, err := api().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	c.namespace = namespace.Name
	for i := range 3 + c.IntN(2) {
		c.nodes = append(c.nodes, c.chaosNode(i))
	}
	c.audit = newAudit(c.world)
	t.Cleanup(func() { c.clear(t) })
	c.urgent = c.namespace + "-urgent"
	localtest.CreatePriorityClass(t, api(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.urgent}, Value: 100})
	if !c.chance(3) {
		c.plantTree(t) // without one, priority alone says who may preempt whom
	}
	c.records, c.stale = pick(c.world, unaltered, unaltered, altered, protected), c.chance(3)
	c.audit.leafless, c.audit.stale = len(c.limits) == 0, c.stale
	c.configure(t)
	if len(c.limits) > 0 && c.chance(3) {
		c.startQueue(t)
	}
	c.script()
	return c
}

// chaosNode is a node with eight V100, one in three of which shares them.
func (c *chaos) chaosNode(i int) worldNode {
	node := passiveNode(fmt.Sprintf("%s-%d", c.id, i), "chaos")
	if i%3 != 2 {
		return node
	}
	shared := sharedNode(pick(c.world, "binpack", "spread"))
	node.object.Labels[contract.NodeModeLabel] = shared.mode
	maps.Copy(node.object.Labels, shared.labels)
	delete(node.object.Status.Allocatable, contract.ResourceTopologyGPU)
	maps.Copy(node.object.Status.Allocatable, shared.extra)
	return node
}

// gpuMemoryGiB is the memory of each GPU of the run's nodes.
const gpuMemoryGiB, gpusPerNode = 15, 8

// plantTree makes a quota tree of two groups with two leaves each, which may borrow.
func (c *chaos) plantTree(t *testing.T) {
	t.Helper()
	for range 2 {
		group := &limit{name: fmt.Sprintf("%s-group-%d", c.id, len(c.limits)), max: int64(6 + c.IntN(10))}
		c.limits = append(c.limits, group)
		for range 2 {
			leaf := &limit{name: fmt.Sprintf("%s-leaf-%d", c.id, len(c.limits)), min: pick[int64](c.world, 0, 2, 6, 8), max: int64(4 + c.IntN(8))}
			group.min += leaf.min
			leaf.leaves = []string{leaf.name}
			group.leaves = append(group.leaves, leaf.name)
			c.audit.leaves[leaf.name] = []*limit{leaf, group}
			c.leaves = append(c.leaves, leaf.name)
			c.limits = append(c.limits, leaf)
		}
	}
	require.NoError(t, c.applyTree(t.Context()))
}

// applyTree writes the quota tree as the limits say.
func (c *chaos) applyTree(ctx context.Context) error {
	var groups []any
	for i := 0; i < len(c.limits); i += 3 {
		var children []any
		for _, leaf := range c.limits[i+1 : i+3] {
			child := map[string]any{"name": leaf.name, "max": gpus(leaf.max), "min": gpus(min(leaf.min, leaf.max))}
			if c.broken != nil {
				c.broken(child)
			}
			children = append(children, child)
		}
		group := c.limits[i]
		groups = append(groups, map[string]any{"name": group.name, "max": gpus(group.max), "min": gpus(min(group.min, group.max)), "children": children})
	}
	groups = append(groups, map[string]any{"name": c.id + "-queue", "max": map[string]any{contract.MaxJobsKey: fmt.Sprint(maxJobs)}})
	_, err := cluster.client.Apply(ctx, newTree(map[string]any{"name": "root", "min": gpus(64), "max": gpus(64), "children": groups}))
	return err
}

func gpus(n int64) map[string]any {
	return map[string]any{contract.ResourceTopologyGPU: fmt.Sprint(n)}
}

// configure chooses how the run's schedulers run: one alone, or two of which one leads;
// with a clock that agrees with the API server's, or not.
func (c *chaos) configure(t *testing.T) {
	t.Helper()
	c.kubeconfig, c.flags = cluster.kubeconfig, []string{"--leader-elect=false"}
	c.changes = map[string]string{}
	schedulers := 1
	if c.chance(3) && c.records != altered {
		schedulers, c.flags = 2, nil
		c.changes["leaseDuration: 6s"], c.changes["renewDeadline: 4s"], c.changes["retryPeriod: 1s"] = "leaseDuration: 2s", "renewDeadline: 1500ms", "retryPeriod: 300ms"
		c.changes["resourceNamespace: gpuplan-system"] = "resourceNamespace: " + c.namespace
	}
	if c.chance(3) {
		ahead := time.Duration(1+c.IntN(7200)) * pick(c.world, time.Second, -time.Second)
		c.kubeconfig = skewed(t, ahead)
		c.reserves = -ahead > contract.DefaultReserveAfter-chaosSettled
		c.changes["qps: 5000"] = "qps: 5000\n  contentType: application/json\n  acceptContentTypes: application/json"
		c.audit.did("the API server's clock is ahead of the scheduler's by %s", ahead)
	}
	if c.chance(2) {
		slow := "qps: 40"
		if from, ok := c.changes["qps: 5000"]; ok {
			slow = strings.Replace(from, "qps: 5000", slow, 1)
		}
		c.changes["qps: 5000"], c.changes["burst: 10000"] = slow, "burst: 2"
	}
	if c.stale {
		c.changes["staleAfter: 0s"] = "staleAfter: " + staleAfter.String()
	}
	if c.records == protected {
		c.protect(t)
	}
	for range schedulers {
		c.start(t)
	}
}

// start starts one more scheduler.
func (c *chaos) start(t *testing.T) {
	t.Helper()
	c.count++
	p, err := launchScheduler(filepath.Join(c.dir), c.kubeconfig, c.changes, c.flags...)
	require.NoError(t, err)
	c.schedulers = append(c.schedulers, p)
	c.ended = append(c.ended, p)
	c.audit.did("scheduler %d starts", p.Command.Process.Pid)
}

func (c *chaos) startQueue(t *testing.T) {
	t.Helper()
	p, err := launchQueue()
	require.NoError(t, err)
	c.queue = p
	c.ended = append(c.ended, p)
}

// script draws everything that the run will do.
func (c *chaos) script() {
	for n := range 12 + c.IntN(8) {
		g := c.chaosGang(n, "")
		c.steps = append(c.steps, step{c.when(), func(*testing.T) { c.begin(g) }})
		if c.chance(3) {
			c.steps = append(c.steps, step{c.when(), func(t *testing.T) { c.finish(t, g) }})
		}
		if g.claim != "" && !c.chance(3) {
			c.steps = append(c.steps, step{c.when(), func(t *testing.T) { c.claims(t.Context(), g) }})
		}
	}
	if c.queue != nil {
		for n := range 4 {
			job := queuedJob(c.namespace, fmt.Sprintf("%s-job-%d", c.id, n), c.id+"-queue")
			c.steps = append(c.steps, step{c.when(), func(t *testing.T) {
				_, err := api().BatchV1().Jobs(c.namespace).Create(t.Context(), job, metav1.CreateOptions{})
				c.audit.did("job %s is queued: %v", job.Name, err)
			}})
		}
		for range 1 + c.IntN(2) {
			c.steps = append(c.steps, step{c.when(), func(t *testing.T) {
				c.audit.did("the queue controller is killed")
				c.audit.killed()
				c.queue.End(syscall.SIGKILL)
				c.startQueue(t)
			}})
		}
	}
	for n := range c.IntN(3) {
		c.steps = append(c.steps, step{c.when(), c.strangerComes(n)})
	}
	for range 2 + c.IntN(4) {
		c.steps = append(c.steps, step{c.when(), c.fault()})
	}
	if len(c.limits) > 0 && c.chance(2) {
		c.steps = append(c.steps, step{c.when(), c.breakTree()})
	}
	if c.stale || c.chance(4) {
		target := c.IntN(1 << 20)
		c.steps = append(c.steps, step{load, func(t *testing.T) { c.loseMember(t, target, 4*staleAfter) }})
	}
	if c.records != unaltered {
		for range 1 + c.IntN(3) {
			target := c.IntN(1 << 20)
			c.steps = append(c.steps, step{c.when(), func(t *testing.T) { c.alter(t, target) }})
		}
	}
}

// when is a random time of the run.
func (c *chaos) when() time.Duration { return time.Duration(c.Int64N(int64(load))) }

// play makes the nodes, starts operator and audit, and does all steps at their times.
func (c *chaos) play(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	inParallel(t, c.nodes, func(n worldNode) error { return createNode(ctx, n.object) })
	go c.audit.follow(ctx)
	c.settleStrangers(t)
	go c.audit.followJobs(ctx, c.namespace)
	go c.operator.run(ctx, c.namespace)
	begin := time.Now()
	sortSteps(c.steps)
	for _, s := range c.steps {
		select {
		case <-time.After(s.at - time.Since(begin)):
		case <-t.Context().Done():
			return
		}
		s.do(t)
		c.revive(t)
		c.audit.checkTime()
	}
}

// revive starts programs again that have ended by themselves, as their Deployments would:
// one that cannot renew its lease ends.
func (c *chaos) revive(t *testing.T) {
	t.Helper()
	left := slices.DeleteFunc(slices.Clone(c.schedulers), (*localtest.Process).Ended)
	ended := len(c.schedulers) - len(left)
	c.schedulers = left
	for range ended {
		c.start(t)
	}
	if c.queue != nil && c.queue.Ended() {
		c.startQueue(t)
	}
}

// stop ends the schedulers.
func (c *chaos) stop() {
	for _, s := range c.schedulers {
		s.End(syscall.SIGKILL)
	}
	if c.queue != nil {
		c.queue.End(syscall.SIGKILL)
	}
}

// clear takes everything away.
func (c *chaos) clear(t *testing.T) {
	c.stop()
	for _, g := range c.operator.list() {
		c.operator.end(g.name)
	}
	ctx, now := context.Background(), int64(0)
	errs := []error{
		api().CoreV1().Pods(c.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
		api().CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}),
		api().CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: volumeOf + "=" + c.namespace}),
		cluster.client.Dynamic.Resource(quotaTrees).Namespace(contract.QuotaTreeNamespace).Delete(ctx, contract.QuotaTreeName, metav1.DeleteOptions{}),
	}
	for _, n := range c.nodes {
		errs = append(errs, api().CoreV1().Nodes().Delete(ctx, n.object.Name, metav1.DeleteOptions{}))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
}

// restart restarts the platform: the API server is gone for a while.
func (c *chaos) restart(t *testing.T, signal syscall.Signal) {
	c.audit.did("the API server ends (%s)", signal)
	c.audit.killed()
	begin := time.Now()
	require.NoError(t, localtest.Start(t).Restart(signal))
	c.audit.pause(time.Since(begin))
	c.audit.did("the API server is back")
}
