package promises

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// configuration is what a platform team declares: pools, a quota tree and jobs.
type configuration struct {
	pools []pool
	// leaves are the leaves of the quota tree by name; without any there is no tree.
	leaves []leaf
	// above is the node of the tree above all leaves, without a name where they are at the top.
	above leaf
	jobs  []job
}

type pool struct {
	name, instanceType, mode string
	size                     int
	labels                   map[string]string
	tainted                  bool
}

// leaf limits the GPUs of mode topology and mode default alike.
type leaf struct {
	name      string
	min, max  int
	namespace string // governed as a whole, "" for none
}

// job is a training job; with each it is one resource with for_each over these keys. Without pools
// it may run anywhere.
type job struct {
	key, name, namespace, framework, mode string
	each                                  []string
	workers, gpus, memoryGiB, corePercent int
	cpu                                   int
	minimum                               int // of an elastic gang, 0 for all
	pools                                 []string
	leaf                                  string
	leafByReference                       bool
	after, afterEach                      string // key of the job that is placed before it, and which of its objects
	literal                               bool   // names that one by its ID, which says nothing of its place
	lateCPU                               int    // of what starts once its members run
	bare                                  bool   // its first role asks for no GPUs, and starts late
	port                                  int    // 0 for the usual one
	immediate, lenient                    bool   // refused rather than waiting; warned rather than refused
	priority                              string
	selector                              map[string]string
	tolerates, hostNetwork, suspended     bool
	consents                              bool // to evictions
	image                                 int
}

// instance is one job object of the cluster.
type instance struct {
	job
	address, id string // id is "namespace/name"
}

// instances are the job's objects with their addresses in terraform.
func (j job) instances() []instance {
	if len(j.each) == 0 {
		return []instance{{j, "gpuplan_training_job." + j.key, j.namespace + "/" + j.name}}
	}
	var all []instance
	for _, key := range j.each {
		all = append(all, instance{j, fmt.Sprintf("gpuplan_training_job.%s[%q]", j.key, key), j.namespace + "/" + j.name + "-" + key})
	}
	return all
}

// afterAddress is the address of the object that is placed before the job, "" for none.
func (j job) afterAddress() string {
	switch {
	case j.after == "" || j.literal:
		return ""
	case j.afterEach != "":
		return fmt.Sprintf("gpuplan_training_job.%s[%q]", j.after, j.afterEach)
	}
	return "gpuplan_training_job." + j.after
}

func (c configuration) instances() []instance {
	var all []instance
	for _, j := range c.jobs {
		all = append(all, j.instances()...)
	}
	return all
}

// find is the job object with an ID.
func (c configuration) find(id string) (i instance, found bool) {
	all := c.instances()
	at := slices.IndexFunc(all, func(i instance) bool { return i.id == id })
	if at < 0 {
		return i, false
	}
	return all[at], true
}

// leaf is the leaf of a name.
func (c configuration) leaf(name string) (l leaf) {
	for _, l := range c.leaves {
		if l.name == name {
			return l
		}
	}
	return l
}

// clone is a copy that changes by itself.
func (c configuration) clone() configuration {
	c.pools, c.leaves, c.jobs = slices.Clone(c.pools), slices.Clone(c.leaves), slices.Clone(c.jobs)
	return c
}

// render is the configuration in terraform's JSON syntax.
func (c configuration) render() map[string]any {
	resources := map[string]any{}
	pools := map[string]any{}
	for _, p := range c.pools {
		attributes := map[string]any{
			"name": p.name, "instance_type": p.instanceType, "mode": p.mode, "size": p.size, "vswitch_ids": []string{"vsw-1"},
		}
		if len(p.labels) > 0 {
			attributes["labels"] = p.labels
		}
		if p.tainted {
			attributes["taints"] = []map[string]any{{"key": taintKey, "value": ofPool, "effect": "NoSchedule"}}
		}
		pools[p.name] = attributes
	}
	if len(pools) > 0 {
		resources["gpuplan_node_pool"] = pools
	}
	if len(c.leaves) > 0 {
		resources["gpuplan_quota_tree"] = map[string]any{"tree": c.tree()}
	}
	jobs := map[string]any{}
	for _, j := range c.jobs {
		jobs[j.key] = c.renderJob(j)
	}
	if len(jobs) > 0 {
		resources["gpuplan_training_job"] = jobs
	}
	all := map[string]any{
		"terraform": map[string]any{"required_providers": map[string]any{"gpuplan": map[string]any{"source": "registry.terraform.io/gpuplan/gpuplan"}}},
		"provider":  map[string]any{"gpuplan": map[string]any{}},
	}
	if len(resources) > 0 {
		all["resource"] = resources
	}
	return all
}

func (c configuration) tree() map[string]any {
	amounts := func(n int) map[string]string {
		return map[string]string{"aliyun.com/gpu": fmt.Sprint(n), "nvidia.com/gpu": fmt.Sprint(n)}
	}
	quotas, total := map[string]any{}, 0
	for _, l := range c.leaves {
		quota := map[string]any{"min": amounts(l.min), "max": amounts(l.max)}
		if l.namespace != "" {
			quota["namespaces"] = []string{l.namespace}
		}
		if c.above.name != "" {
			quotas[c.above.name+"/"+l.name] = quota
			continue
		}
		quotas[l.name], total = quota, total+l.max
	}
	if c.above.name != "" {
		quotas[c.above.name], total = map[string]any{"min": amounts(c.above.min), "max": amounts(c.above.max)}, c.above.max
	}
	return map[string]any{"total": amounts(total), "quotas": quotas}
}

func (c configuration) renderJob(j job) map[string]any {
	member := map[string]any{}
	if j.cpu > 0 {
		member["cpu"] = fmt.Sprint(j.cpu)
	}
	if j.mode == "shared" {
		member["memory_gib"] = j.memoryGiB
		if j.corePercent > 0 {
			member["core_percent"] = j.corePercent
		}
	} else {
		member["gpus"] = j.gpus
	}
	workers := maps.Clone(member)
	workers["replicas"] = j.workers
	roles := map[string]any{"worker": workers}
	late := map[string]any{}
	if j.lateCPU > 0 {
		late["cpu"] = fmt.Sprint(j.lateCPU)
	}
	switch {
	case j.framework == "mpi":
		roles["launcher"] = late
	case j.asJobSet() && j.bare:
		roles["driver"] = late
	case j.framework == "pytorch" && j.bare:
		roles["master"] = late
	case j.framework == "pytorch":
		roles["master"] = member
	}
	attributes := map[string]any{
		"name": j.name, "namespace": j.namespace, "framework": j.framework, "mode": j.mode, "roles": roles,
		"image": fmt.Sprintf("train:%d", j.image), "command": []string{"train"}, "wait_for": "none",
		"gang": map[string]any{},
	}
	if len(j.pools) > 0 {
		attributes["pools"] = c.capacities(j.pools)
	}
	if len(j.each) > 0 {
		attributes["for_each"] = "${toset([\"" + strings.Join(j.each, `","`) + "\"])}"
		attributes["name"] = j.name + "-${each.key}"
	}
	if j.minimum > 0 {
		attributes["gang"] = map[string]any{"minimum": j.minimum}
	}
	if j.leaf != "" {
		attributes["quota"] = j.leaf
		if j.leafByReference {
			attributes["quota"] = fmt.Sprintf("${gpuplan_quota_tree.tree.leaves[%q]}", j.leaf)
		}
	}
	if address := j.afterAddress(); address != "" {
		attributes["after"] = []string{fmt.Sprintf("${%s.%s}", address, afterAttribute)}
	}
	if j.literal {
		attributes["after"] = []string{"default/" + j.after}
	}
	if j.port > 0 {
		attributes["port"] = j.port
	}
	if j.immediate {
		attributes["require_immediate"] = true
	}
	if j.lenient {
		attributes["placement_check"] = "warn"
	}
	if j.priority != "" {
		attributes["priority_class"] = j.priority
	}
	if len(j.selector) > 0 {
		attributes["node_selector"] = j.selector
	}
	if j.tolerates {
		attributes["tolerations"] = []map[string]any{{"key": taintKey, "operator": "Exists"}}
	}
	if j.hostNetwork {
		attributes["host_network"] = true
	}
	if j.suspended {
		attributes["suspend"] = true
	}
	if j.consents {
		attributes["allow_preemption"] = true
	}
	return attributes
}

func (c configuration) capacities(pools []string) []string {
	var all []string
	for _, name := range pools {
		all = append(all, "${gpuplan_node_pool."+name+".capacity}")
	}
	return all
}

func (c configuration) pool(name string) (pool, bool) {
	i := slices.IndexFunc(c.pools, func(p pool) bool { return p.name == name })
	if i < 0 {
		return pool{}, false
	}
	return c.pools[i], true
}

// generator makes configurations and their changes; everything follows from its seed.
type generator struct {
	*rand.Rand
	names *rand.Rand // chance of what came later, so that the rest of a world stays as it was
	id    string
	jobs  int  // made so far
	roomy bool // the world's jobs find room, and have an order
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

// first is the configuration that a world begins with.
func (g *generator) first() configuration {
	var c configuration
	g.roomy = g.chance(50)
	for i := range 1 + g.IntN(2) {
		p := pool{name: fmt.Sprintf("%s-p%d", g.id, i), size: g.size(), mode: pick(g, "topology", "topology", "topology", "default", "core_mem")}
		p.instanceType = pick(g, "ecs.gn6v-c8g1.4xlarge", "ecs.gn6v-c8g1.8xlarge", "ecs.gn6v-c10g1.20xlarge")
		if p.mode == "core_mem" {
			p.instanceType = pick(g, "ecs.gn6i-c24g1.12xlarge", "ecs.gn6i-c24g1.24xlarge")
		}
		if g.chance(15) {
			p.labels = map[string]string{labelKey: ofPool}
		}
		p.tainted = g.chance(10)
		c.pools = append(c.pools, p)
	}
	if g.chance(50) {
		for i := range 1 + g.IntN(2) {
			low := g.IntN(5)
			l := leaf{name: fmt.Sprintf("%s-l%d", g.id, i), min: low, max: low + 2 + g.IntN(12)}
			if i == 1 && g.chance(50) {
				l.namespace = otherNamespace
			}
			c.leaves = append(c.leaves, l)
		}
		if g.chance(40) {
			c.above = g.node(c.leaves)
		}
	}
	for range g.arrivals() {
		c.jobs = append(c.jobs, g.job(c))
	}
	return c
}

// node is one of the quota tree above some leaves, which may leave them less than they may use by themselves.
func (g *generator) node(leaves []leaf) leaf {
	up := leaf{name: g.id + "-up"}
	for _, l := range leaves {
		up.min, up.max = up.min+l.min, up.max+l.max
	}
	for _, l := range leaves {
		up.max = max(up.max-g.IntN(4), up.min, l.max)
	}
	return up
}

// size is that of a new pool.
func (g *generator) size() int {
	if g.roomy {
		return 4 + g.IntN(4)
	}
	return 1 + g.IntN(3)
}

// arrivals is the number of jobs that a configuration gets.
func (g *generator) arrivals() int {
	if g.roomy {
		return 1 + g.IntN(3)
	}
	return g.IntN(3)
}

// job is a new job for the configuration.
func (g *generator) job(c configuration) job {
	g.jobs++
	p := pick(g, c.pools...)
	j := job{
		key: fmt.Sprintf("j%d", g.jobs), name: fmt.Sprintf("%s-j%d", g.id, g.jobs), namespace: "default",
		framework: pick(g, "pytorch", "pytorch", "mpi", "mpi", "jobset", "batch"), mode: p.mode, workers: 1 + g.IntN(3), gpus: pick(g, 1, 1, 1, 2, 2, 4),
		pools: []string{p.name}, image: 1,
	}
	if p.mode == "core_mem" {
		j.mode, j.memoryGiB = "shared", pick(g, 3, 5, 8, 14)
		j.corePercent = pick(g, 0, 20, 50, 100)
	}
	for _, other := range c.pools {
		if other.name != p.name && other.mode == p.mode && g.chance(50) {
			j.pools = append(j.pools, other.name)
		}
	}
	if g.chance(20) {
		j.cpu = 1 + g.IntN(6)
	}
	if j.framework == "jobset" && g.names.IntN(2) == 0 {
		j.framework = "trainjob"
	}
	j.bare = g.chance(15) && (j.framework == "pytorch" || j.asJobSet())
	if j.bare || j.framework == "mpi" && g.chance(30) {
		j.lateCPU = pick(g, 1, 4, 16)
	}
	if g.chance(5) {
		j.pools = nil
	}
	if g.chance(20) && j.members() > 1 && !j.asJobSet() && j.framework != "batch" {
		j.minimum = 1 + g.IntN(j.members()-1)
	}
	if len(c.leaves) > 0 && g.chance(70) {
		l := pick(g, c.leaves...)
		j.leaf, j.leafByReference = l.name, g.chance(50)
	}
	if g.chance(15) {
		j.namespace = otherNamespace
	}
	if g.chance(15) {
		j.selector = pick(g, map[string]string{labelKey: "kubectl"}, map[string]string{labelKey: ofPool}, map[string]string{zoneKey: "a"})
	}
	j.priority = pick(g, "", "", "", lowPriority, highPriority)
	j.tolerates, j.hostNetwork, j.consents = g.chance(25), g.chance(20) && j.framework == "pytorch" && !j.bare, g.chance(30)
	if j.hostNetwork {
		j.port = pick(g, 0, 0, otherPort)
	}
	j.immediate, j.lenient = g.chance(10), g.chance(8)
	ordered := 40
	if g.roomy {
		ordered = 85
	}
	if previous := len(c.jobs); previous > 0 && g.chance(ordered) {
		before := c.jobs[previous-1]
		if j.after = before.key; len(before.each) > 0 {
			j.afterEach = pick(g, before.each...)
		}
		j.literal = g.chance(3)
	}
	if g.chance(10) {
		j.each = []string{"x", "y", "z"}[:2+g.names.IntN(2)]
	}
	return j
}

// asJobSet reports whether the job runs as a JobSet, which starts all of its pods or none.
func (j job) asJobSet() bool { return j.framework == "jobset" || j.framework == "trainjob" }

// members are those of the gang.
func (j job) members() int {
	if j.framework == "pytorch" && !j.bare {
		return j.workers + 1
	}
	return j.workers
}

// next is a later state of the configuration.
func (g *generator) next(c configuration) configuration {
	c = c.clone()
	var jobs []job
	for _, j := range c.jobs {
		switch roll := g.IntN(100); {
		case roll < 15:
			continue
		case roll < 25:
			j.image++
		case roll < 35:
			j.suspended = !j.suspended
		case roll < 40:
			j.name += "r"
		case roll < 48:
			j.workers = 1 + g.IntN(3)
			j.minimum = min(j.minimum, j.members())
		}
		jobs = append(jobs, j)
	}
	c.jobs = jobs
	g.rename(jobs)
	for i := range c.pools {
		switch roll := g.IntN(100); {
		case roll < 10:
			c.pools[i].size++
		case roll < 20:
			c.pools[i].size = max(0, c.pools[i].size-1)
		case roll < 26:
			c.pools[i].tainted = !c.pools[i].tainted
		case roll < 32 && len(c.pools[i].labels) > 0:
			c.pools[i].labels = nil
		case roll < 32:
			c.pools[i].labels = map[string]string{labelKey: ofPool}
		}
	}
	for i := range c.leaves {
		if g.chance(15) {
			c.leaves[i].max = c.leaves[i].min + 1 + g.IntN(8)
			if c.above.name != "" {
				c.leaves[i].max = min(c.leaves[i].max, c.above.max)
			}
		}
	}
	for range g.arrivals() {
		c.jobs = append(c.jobs, g.job(c))
	}
	return c.ordered()
}

// rename gives some jobs new names, those of others among them.
func (g *generator) rename(jobs []job) {
	for i := range jobs {
		j, other := &jobs[i], &jobs[g.names.IntN(len(jobs))]
		switch roll := g.names.IntN(100); {
		case roll < 8:
			j.name += "n"
		case roll < 16:
			j.name, j.namespace, other.name, other.namespace = other.name, other.namespace, j.name, j.namespace
		}
	}
}

// having is the configuration with a job of the next one, and with what that depends on.
func (c configuration) having(next configuration, key string) configuration {
	c = c.clone()
	for key != "" {
		j := next.jobs[slices.IndexFunc(next.jobs, func(j job) bool { return j.key == key })]
		c.jobs = append(slices.DeleteFunc(c.jobs, func(old job) bool { return old.key == key }), j)
		for _, name := range j.pools {
			p, _ := next.pool(name)
			c.pools = append(slices.DeleteFunc(c.pools, func(old pool) bool { return old.name == name }), p)
		}
		if j.leafByReference {
			c.leaves = next.leaves
		}
		if key = j.after; j.literal {
			key = ""
		}
	}
	return c
}

// ordered drops references to jobs that are gone.
func (c configuration) ordered() configuration {
	known := map[string]bool{}
	for i := range c.jobs {
		if !known[c.jobs[i].after] {
			c.jobs[i].after, c.jobs[i].afterEach, c.jobs[i].literal = "", "", false
		}
		known[c.jobs[i].key] = true
	}
	return c
}

// without leaves a job out.
func (c configuration) without(key string) configuration {
	c = c.clone()
	c.jobs = slices.DeleteFunc(c.jobs, func(j job) bool { return j.key == key })
	return c.ordered()
}
