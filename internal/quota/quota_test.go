package quota_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/quota"
)

const gpus = "aliyun.com/gpu"

func amounts(n int64) quota.Resources { return quota.Resources{gpus: n} }

// company is a tree of three leaves: root 16 { research 12 { vision 4..8, speech 4..12 }, serving 4..16 }.
func company() quota.Spec {
	return quota.Spec{
		Name: "company", Min: amounts(16), Max: amounts(16),
		Children: []quota.Spec{
			{Name: "research", Min: amounts(8), Max: amounts(12), Children: []quota.Spec{
				{Name: "vision", Min: amounts(4), Max: amounts(8), Namespaces: []string{"vision", "vision-dev"}},
				{Name: "speech", Min: amounts(4), Max: amounts(12), Namespaces: []string{"speech"}},
			}},
			{Name: "serving", Min: amounts(4), Max: amounts(16), Namespaces: []string{"prod"}},
		},
	}
}

func tree(t *testing.T, s quota.Spec) *quota.Tree {
	t.Helper()
	tree, err := quota.New(s)
	require.NoError(t, err)
	return tree
}

func TestCheck(t *testing.T) {
	leaf := func(name string, change func(*quota.Spec)) quota.Spec {
		s := quota.Spec{Name: name, Min: amounts(1), Max: amounts(2)}
		change(&s)
		return s
	}
	none := func(*quota.Spec) {}
	root := func(children ...quota.Spec) quota.Spec {
		return quota.Spec{Min: amounts(10), Max: amounts(10), Children: children}
	}
	cases := map[string]struct {
		spec                   quota.Spec
		path, field, text, res string
		warning                bool
	}{
		"empty name":             {root(leaf("", none)), "root/", "name", "needs a name", "", false},
		"slash in a name":        {root(leaf("a/b", none)), "root/a/b", "name", "slash", "", false},
		"the root's name":        {root(leaf("root", none)), "root/root", "name", "topmost", "", false},
		"one name twice":         {root(leaf("a", none), leaf("a", none)), "root/a", "name", "already used by root/a", "", false},
		"negative min":           {root(leaf("a", func(s *quota.Spec) { s.Min = amounts(-1) })), "root/a", "min", "negative", gpus, false},
		"negative max":           {root(leaf("a", func(s *quota.Spec) { s.Min = nil; s.Max = amounts(-1) })), "root/a", "max", "negative", gpus, false},
		"negative lend limit":    {root(leaf("a", func(s *quota.Spec) { s.LendLimit = amounts(-1) })), "root/a", "lendLimit", "negative", gpus, false},
		"negative jobs":          {root(leaf("a", func(s *quota.Spec) { s.MaxJobs = -1 })), "root/a", "maxJobs", "negative", "", false},
		"min above max":          {root(leaf("a", func(s *quota.Spec) { s.Min = amounts(3) })), "root/a", "min", "min of aliyun.com/gpu is 3, above its max 2", gpus, false},
		"lends more than min":    {root(leaf("a", func(s *quota.Spec) { s.LendLimit = amounts(2) })), "root/a", "lendLimit", "above min 1", gpus, false},
		"root min is not max":    {quota.Spec{Min: amounts(9), Max: amounts(10)}, "root", "min", "min 9 and max 10", gpus, false},
		"root without max":       {quota.Spec{Min: amounts(9)}, "root", "min", "min 9 and max none", gpus, false},
		"namespace inside":       {quota.Spec{Namespaces: []string{"x"}, Children: []quota.Spec{{Name: "a"}}}, "root", "namespaces", "move x to a leaf", "", false},
		"namespace of two":       {root(leaf("a", func(s *quota.Spec) { s.Namespaces = []string{"x"} }), leaf("b", func(s *quota.Spec) { s.Namespaces = []string{"x"} })), "root/b", "namespaces", "already belongs to root/a", "", false},
		"namespace twice":        {root(leaf("a", func(s *quota.Spec) { s.Namespaces = []string{"x", "x"} })), "root/a", "namespaces", "listed twice", "", false},
		"empty namespace":        {root(leaf("a", func(s *quota.Spec) { s.Namespaces = []string{""} })), "root/a", "namespaces", "is empty", "", false},
		"mins exceed the parent": {root(leaf("a", func(s *quota.Spec) { s.Min = amounts(11); s.Max = nil })), "root", "children", "add up to 11, above the parent's min 10", gpus, true},
		"max above the parent":   {root(leaf("a", func(s *quota.Spec) { s.Max = amounts(11) })), "root/a", "max", "above the parent's max 10", gpus, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			problems := quota.Check(c.spec)
			require.Len(t, problems, 1, "%v", problems)
			p := problems[0]
			assert.Equal(t, c.path, p.Path)
			assert.Equal(t, c.field, p.Field)
			assert.Equal(t, c.res, p.Resource)
			assert.Equal(t, c.warning, p.Warning)
			assert.Contains(t, p.Text, c.text)

			_, err := quota.New(c.spec)
			if c.warning {
				require.NoError(t, err)
				return
			}
			var invalid *quota.Invalid
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, problems, invalid.Problems)
			assert.Contains(t, err.Error(), c.path+": ")
		})
	}
	assert.Empty(t, quota.Check(company()))
}

func TestLookUp(t *testing.T) {
	tr := tree(t, company())
	assert.Equal(t, []string{"vision", "speech", "serving"}, tr.Leaves())
	assert.Equal(t, "vision", tr.LeafOf("vision-dev"))
	assert.Empty(t, tr.LeafOf("nobody"))
	assert.True(t, tr.HasLeaf("serving"))
	assert.False(t, tr.HasLeaf("research"), "an inner node is no leaf")
	assert.False(t, tr.HasLeaf("nobody"))
	assert.Equal(t, "root/research/speech", tr.Path("speech"))
	assert.Equal(t, "root", tr.Path("root"), "the topmost node is renamed")
	assert.Empty(t, tr.Path("company"))
	assert.Equal(t, []string{"root"}, tree(t, quota.Spec{}).Leaves())
}

func TestFits(t *testing.T) {
	type usage map[string]int64
	cases := map[string]struct {
		used  usage
		fixed usage
		leaf  string
		ask   int64
		firm  bool
		want  *quota.Exceeded
	}{
		"up to the leaf's max":       {leaf: "vision", ask: 8},
		"above the leaf's max":       {leaf: "vision", ask: 9, want: &quota.Exceeded{Path: "root/research/vision", Requested: 9, Limit: 8}},
		"with what is used":          {used: usage{"vision": 6}, leaf: "vision", ask: 3, want: &quota.Exceeded{Path: "root/research/vision", Used: 6, Requested: 3, Limit: 8}},
		"an ancestor's max":          {used: usage{"speech": 7}, leaf: "vision", ask: 6, want: &quota.Exceeded{Path: "root/research", Used: 7, Requested: 6, Limit: 12}},
		"the root's max":             {used: usage{"serving": 12}, leaf: "vision", ask: 5, want: &quota.Exceeded{Path: "root", Used: 12, Requested: 5, Limit: 16}},
		"borrows to the last GPU":    {used: usage{"serving": 8}, leaf: "vision", ask: 8},
		"firm up to min":             {leaf: "vision", ask: 4, firm: true},
		"firm above min":             {leaf: "vision", ask: 5, firm: true, want: &quota.Exceeded{Path: "root/research/vision", Requested: 5, Limit: 4, Guaranteed: true}},
		"firm beside what may leave": {used: usage{"vision": 4}, leaf: "vision", ask: 4, firm: true},
		"firm beside what is firm":   {fixed: usage{"vision": 1}, leaf: "vision", ask: 4, firm: true, want: &quota.Exceeded{Path: "root/research/vision", Used: 1, Requested: 4, Limit: 4, Guaranteed: true}},
		"firm above max":             {used: usage{"vision": 5}, leaf: "vision", ask: 4, firm: true, want: &quota.Exceeded{Path: "root/research/vision", Used: 5, Requested: 4, Limit: 8}},
		"nothing asked":              {used: usage{"vision": 100}, leaf: "vision", ask: 0},
		"no such leaf":               {leaf: "nobody", ask: 1000},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tr := tree(t, company())
			for leaf, n := range c.used {
				tr.Add(leaf, amounts(n), true)
			}
			for leaf, n := range c.fixed {
				tr.Add(leaf, amounts(n), false)
			}
			if c.want != nil {
				c.want.Resource = gpus
			}
			assert.Equal(t, c.want, tr.Fits(c.leaf, amounts(c.ask), !c.firm))
		})
	}
}

func TestResourceThatTheTreeDoesNotNameIsFree(t *testing.T) {
	tr := tree(t, company())
	assert.Nil(t, tr.Fits("vision", quota.Resources{"cpu": 1 << 40}, false))
}

// TestResourceThatAMinDoesNotList: nothing is guaranteed of it, so only who may leave again uses it.
func TestResourceThatAMinDoesNotList(t *testing.T) {
	spec := company()
	spec.Min, spec.Max = quota.Resources{gpus: 16, "cpu": 8}, quota.Resources{gpus: 16, "cpu": 8}
	tr := tree(t, spec)
	ask := quota.Resources{gpus: 1, "cpu": 1}
	assert.Nil(t, tr.Fits("vision", ask, true))
	assert.Equal(t, &quota.Exceeded{Path: "root/research/vision", Resource: "cpu", Requested: 1, Guaranteed: true}, tr.Fits("vision", ask, false))
	assert.False(t, tr.Entitled("vision", ask))
}

func TestLendLimit(t *testing.T) {
	spec := company()
	spec.Children[1].LendLimit = amounts(1) // serving keeps 3 of its 4
	spec.Children[0].Max = amounts(16)
	tr := tree(t, spec)
	tr.Add("speech", amounts(8), true)
	assert.Nil(t, tr.Fits("vision", amounts(5), true))
	assert.Equal(t, &quota.Exceeded{Path: "root", Resource: gpus, Used: 11, Requested: 6, Limit: 16, Held: 3},
		tr.Fits("vision", amounts(6), true))
	tr.Add("serving", amounts(4), true)
	assert.Nil(t, tr.Fits("vision", amounts(4), true), "what the owner uses is not held back twice")
	assert.Equal(t, "quota root: max of aliyun.com/gpu is 16, 12 is used and 5 is asked for", tr.Fits("vision", amounts(5), true).String())
}

func TestUsageThatIsReserved(t *testing.T) {
	spec := company()
	spec.MaxJobs = 2
	spec.Children[1].LendLimit = amounts(1) // serving keeps 3 of its 4
	spec.Children[0].Max = amounts(16)
	tr := tree(t, spec)
	tr.Add("speech", amounts(6), true)
	tr.AddJob("speech")
	later := tr.Unused()
	later.Remove("speech", amounts(6), true)
	later.Add("vision", amounts(8), true)
	later.AddJob("vision")
	assert.Nil(t, tr.Fits("speech", amounts(6), true))
	assert.Nil(t, tr.FitsWith(later, "speech", amounts(5), true))
	assert.Equal(t, "quota root: max of aliyun.com/gpu is 16, 6 is used (11 once reservations are taken, 3 of it held back by lend limits) and 6 is asked for",
		tr.FitsWith(later, "speech", amounts(6), true).String())
	assert.Nil(t, tr.FitsJob("speech"))
	assert.Equal(t, "quota root: max of jobs is 2, 1 is used (2 once reservations are taken) and 1 is asked for", tr.FitsJobWith(later, "speech").String())

	later.Remove("vision", amounts(8), true)
	later.Add("vision", amounts(2), false)
	assert.Nil(t, tr.Fits("vision", amounts(4), false))
	assert.Equal(t, "quota root/research/vision: min, which caps what is not preemptible, of aliyun.com/gpu is 4, 0 is used (2 once reservations are taken) and 3 is asked for",
		tr.FitsWith(later, "vision", amounts(3), false).String())
}

func TestLendLimitOfAnInnerNode(t *testing.T) {
	spec := company()
	spec.Children[0].LendLimit = amounts(0) // research keeps its 8
	tr := tree(t, spec)
	tr.Add("vision", amounts(2), true)
	e := tr.Fits("serving", amounts(9), true)
	require.NotNil(t, e)
	assert.Equal(t, "quota root: max of aliyun.com/gpu is 16, 8 is used (6 of it held back by lend limits) and 9 is asked for", e.String())
	assert.Nil(t, tr.Fits("speech", amounts(6), true), "research itself may use what it keeps")
	tr.Add("serving", amounts(9), true)
	assert.Nil(t, tr.Fits("speech", amounts(5), true), "even when the limit came after others had borrowed")
	assert.NotNil(t, tr.Fits("speech", amounts(6), true))
}

func TestMaxJobs(t *testing.T) {
	spec := company()
	spec.Children[0].MaxJobs = 1
	tr := tree(t, spec)
	require.Nil(t, tr.FitsJob("vision"))
	tr.AddJob("vision")
	assert.Equal(t, &quota.Exceeded{Path: "root/research", Resource: quota.Jobs, Used: 1, Requested: 1, Limit: 1}, tr.FitsJob("speech"))
	assert.Nil(t, tr.FitsJob("serving"))
	assert.Nil(t, tr.FitsJob("nobody"))
	tr.RemoveJob("vision")
	assert.Nil(t, tr.FitsJob("speech"))

	spec.MaxJobs = 2
	tr = tree(t, spec)
	tr.AddJob("vision")
	require.Nil(t, tr.FitsJob("serving"))
	tr.AddJob("serving")
	assert.Equal(t, &quota.Exceeded{Path: "root", Resource: quota.Jobs, Used: 2, Requested: 1, Limit: 2}, tr.FitsJob("serving"), "the root's limit is that of all leaves")
}

func TestEntitledAndBorrows(t *testing.T) {
	tr := tree(t, company())
	tr.Add("vision", amounts(3), true)
	tr.Add("speech", amounts(5), true)
	assert.True(t, tr.Entitled("vision", amounts(1)))
	assert.False(t, tr.Entitled("vision", amounts(2)))
	assert.True(t, tr.Entitled("vision", quota.Resources{gpus: 1, "cpu": 99}), "cpu is not governed")
	assert.False(t, tr.Entitled("nobody", amounts(1)))
	assert.True(t, tr.Borrows("speech", amounts(5), amounts(1)))
	assert.False(t, tr.Borrows("speech", amounts(5), quota.Resources{"cpu": 1}), "nothing to give that the preemptor wants")
	assert.False(t, tr.Borrows("vision", amounts(3), amounts(1)))
	assert.False(t, tr.Borrows("nobody", amounts(3), amounts(1)))
	assert.InDelta(t, 0.75, tr.Share("vision", quota.Resources{gpus: 1, "cpu": 1}), 1e-9)
	assert.InDelta(t, 1.25, tr.Share("speech", amounts(1)), 1e-9)
	assert.Zero(t, tr.Share("serving", amounts(1)))
	assert.Zero(t, tr.Share("nobody", amounts(1)))
	tr.Add("vision", quota.Resources{"cpu": 1}, true)
	assert.InDelta(t, 0.75, tr.Share("vision", quota.Resources{gpus: 1, "cpu": 1}), 1e-9, "cpu is not governed")

	guests := tree(t, quota.Spec{Name: "root", Min: amounts(8), Max: amounts(8), Children: []quota.Spec{{Name: "guests", Max: amounts(8)}}})
	guests.Add("guests", amounts(1), true)
	assert.True(t, math.IsInf(guests.Share("guests", amounts(1)), 1))
}

// What is not guaranteed to a leaf keeps it from all that it may take back.
func TestUnguaranteed(t *testing.T) {
	spec := company()
	spec.Min["cpu"], spec.Max["cpu"] = 100, 100
	full := quota.Exceeded{Path: "root", Resource: gpus}
	for name, test := range map[string]struct {
		borrows int64
		leaf    string
		request quota.Resources
		full    quota.Exceeded
		want    []string
	}{
		"cpu is not guaranteed":      {10, "vision", quota.Resources{gpus: 4, "cpu": 1}, full, []string{"cpu"}},
		"nothing else is asked for":  {10, "vision", amounts(4), full, nil},
		"what is not governed":       {10, "vision", quota.Resources{gpus: 4, "memory": 1}, full, nil},
		"more than the minimum":      {10, "vision", quota.Resources{gpus: 5, "cpu": 1}, full, nil},
		"nobody borrows":             {4, "vision", quota.Resources{gpus: 4, "cpu": 1}, full, nil},
		"nobody borrows below it":    {10, "vision", quota.Resources{gpus: 4, "cpu": 1}, quota.Exceeded{Path: "root/research/vision", Resource: gpus}, nil},
		"nobody borrows of it":       {10, "vision", quota.Resources{gpus: 4, "cpu": 1}, quota.Exceeded{Path: "root", Resource: "cpu"}, nil},
		"what is not preemptible":    {10, "vision", quota.Resources{gpus: 4, "cpu": 1}, quota.Exceeded{Path: "root", Resource: gpus, Guaranteed: true}, nil},
		"a leaf that does not exist": {10, "nobody", quota.Resources{gpus: 4, "cpu": 1}, full, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tr := tree(t, spec)
			tr.Add("speech", amounts(test.borrows), true)
			assert.Equal(t, test.want, tr.Unguaranteed(test.leaf, test.request, test.full))
		})
	}
}

func TestUsageComesAndGoes(t *testing.T) {
	tr := tree(t, company())
	tr.Add("vision", quota.Resources{gpus: 2, "cpu": 500}, true)
	tr.Add("", amounts(2), true)
	before := tr.Clone()
	tr.Add("speech", amounts(3), false)
	assert.Equal(t, quota.Resources{gpus: 5, "cpu": 500}, tr.Used("root"))
	assert.Equal(t, quota.Resources{gpus: 3}, tr.Used("speech"))
	assert.Equal(t, quota.Resources{gpus: 2, "cpu": 500}, before.Used("research"), "a clone is independent")
	tr.Remove("speech", amounts(3), false)
	assert.Equal(t, before, tr, "removing restores the tree exactly")
	tr.Used("vision")[gpus] = 99
	assert.Equal(t, before, tr, "what Used returns is a copy")
}

// What runs and names a leaf that the tree lacks is charged to the root alone.
func TestLeafThatIsNotInTheTree(t *testing.T) {
	const full = "quota root: max of aliyun.com/gpu is 16, 10 is used and 7 is asked for"
	for name, test := range map[string]struct {
		leaf string
		firm bool
		lend quota.Resources
		ask  int64
		full string // what one more than asked for exceeds
	}{
		"it has gone":             {leaf: "nobody", ask: 6, full: full},
		"it is an inner node":     {leaf: "research", ask: 6, full: full},
		"it is the root":          {leaf: "root", ask: 6, full: full},
		"what runs is guaranteed": {leaf: "nobody", firm: true, ask: 6, full: full},
		"something else is kept":  {leaf: "nobody", lend: amounts(1), ask: 3, full: "quota root: max of aliyun.com/gpu is 16, 13 is used (3 of it held back by lend limits) and 4 is asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := company()
			spec.MaxJobs = 1
			spec.Children[1].LendLimit = test.lend
			tr := tree(t, spec)
			empty := tr.Clone()
			assert.Equal(t, "root", tr.Payer(test.leaf))
			assert.Contains(t, tr.Missing(test.leaf), "no leaf")
			tr.Add(test.leaf, amounts(10), !test.firm)
			tr.AddJob(test.leaf)
			assert.Equal(t, amounts(10), tr.Used("root"))
			assert.Empty(t, tr.Used("research"))
			assert.Nil(t, tr.Fits("vision", amounts(test.ask), true))
			assert.Equal(t, test.full, tr.Fits("vision", amounts(test.ask+1), true).String())
			assert.Equal(t, "quota root: max of jobs is 1, 1 is used and 1 is asked for", tr.FitsJob("vision").String())
			assert.False(t, tr.Borrows(test.leaf, amounts(10), amounts(1)), "there is no minimum beyond which it borrows")
			assert.Zero(t, tr.Share(test.leaf, amounts(1)))
			assert.Equal(t, tr, empty.With(tr))
			tr.Remove(test.leaf, amounts(10), !test.firm)
			tr.RemoveJob(test.leaf)
			assert.Equal(t, empty, tr)
		})
	}
	tr := tree(t, company())
	tr.Add("", amounts(10), true)
	assert.Empty(t, tr.Used("root"), "what names no leaf is outside of the tree")
	assert.Empty(t, tr.Payer(""))
	assert.Equal(t, "vision", tr.Payer("vision"))
}

func TestBorrowed(t *testing.T) {
	spec := company()
	spec.Children[0].Children[0].MaxJobs = 2
	tr := tree(t, spec)
	leaf := spec.Children[0].Children[0]
	tr.Add(leaf.Name, quota.Resources{gpus: leaf.Min[gpus] + 3, "pods": 1}, true)
	tr.AddJob(leaf.Name)
	assert.Equal(t, quota.Resources{gpus: 3}, tr.Borrowed(leaf.Name), "the tree does not name pods")
	assert.Empty(t, tr.Borrowed("nobody"))
	running, most := tr.JobsOf(leaf.Name)
	assert.Equal(t, []int64{1, 2}, []int64{running, most})
	assert.Equal(t, leaf.Namespaces, tr.Namespaces(leaf.Name))
}

func TestRaise(t *testing.T) {
	spec := company()
	spec.Children[0].Children[0].MaxJobs = 1
	tr := tree(t, spec)
	tr.Add("vision", amounts(8), true)
	tr.AddJob("vision")

	raised, from, to := tr.Raise(*tr.Fits("vision", amounts(1), true))
	assert.Equal(t, []int64{8, 9}, []int64{from, to})
	assert.Nil(t, raised.Fits("vision", amounts(1), true))
	assert.NotNil(t, tr.Fits("vision", amounts(1), true), "the original keeps its limits")

	raised, from, to = tr.Raise(*tr.FitsJob("vision"))
	assert.Equal(t, []int64{1, 2}, []int64{from, to})
	assert.Nil(t, raised.FitsJob("vision"))

	raised, _, _ = tr.Raise(*tr.Fits("speech", amounts(7), false))
	assert.Nil(t, raised, "no maximum helps against a minimum")
	raised, _, _ = tr.Raise(quota.Exceeded{Path: "root/nobody"})
	assert.Nil(t, raised)
}

// TestFleetDocument is the tree of Alibaba Cloud's "Schedule multi-cluster
// PyTorchJobs with gang scheduling and Kube Queue": a leaf with a maximum only, and
// one job at a time.
func TestFleetDocument(t *testing.T) {
	all := quota.Resources{"cpu": 40_000, "memory": 40 << 30, gpus: 4}
	tr := tree(t, quota.Spec{Name: "root", Min: all, Max: all, Children: []quota.Spec{
		{Name: "child-1", Max: quota.Resources{"cpu": 40_000, gpus: 4}, Namespaces: []string{"default"}},
		{Name: "child-2", Max: quota.Resources{"cpu": 20_000, gpus: 2}, MaxJobs: 1, Namespaces: []string{"gang"}},
	}})
	job := quota.Resources{"cpu": 3_000, "memory": 3 << 30, gpus: 1}
	leaf := tr.LeafOf("gang")
	require.Nil(t, tr.Fits(leaf, job, true))
	require.Nil(t, tr.FitsJob(leaf))
	tr.Add(leaf, job, true)
	tr.AddJob(leaf)
	assert.Nil(t, tr.Fits(leaf, job, true), "the amounts leave room for a second job")
	assert.Equal(t, "quota root/child-2: max of jobs is 1, 1 is used and 1 is asked for", tr.FitsJob(leaf).String())
	assert.NotNil(t, tr.Fits(leaf, job, false), "a leaf without min guarantees nothing")
}

func TestOver(t *testing.T) {
	tr := tree(t, company())
	tr.Add("vision", amounts(8), true)
	assert.Nil(t, tr.Over("vision", amounts(8)))
	tr.Add("speech", amounts(5), true)
	assert.Equal(t, "quota root/research: max of aliyun.com/gpu is 12, 13 is used", tr.Over("vision", amounts(8)).String())
	assert.Nil(t, tr.Over("vision", quota.Resources{"cpu": 1, gpus: 0}), "the pod uses nothing that is short")
	assert.Nil(t, tr.Over("nobody", amounts(1)))
}

func TestFormat(t *testing.T) {
	assert.Equal(t, "2.5", quota.Format("cpu", 2500))
	assert.Equal(t, "123456", quota.Format("cpu", 123_456_000))
	assert.Equal(t, "70.37G", quota.Format("cpu", 1<<46), "what a pod asks for at most")
	assert.Equal(t, "1.5Gi", quota.Format("memory", 3<<29))
	assert.Equal(t, "2048Gi", quota.Format("memory", 2<<40))
	assert.Equal(t, "64Ti", quota.Format("memory", 1<<46))
	assert.Equal(t, "64Pi", quota.Format("memory", 1<<56), "what a tree has at most")
	assert.Equal(t, "8", quota.Format(gpus, 8))
}

// FuzzTree checks on random trees and requests that what Fits admits never exceeds
// a maximum, and that taking everything back restores the tree.
func FuzzTree(f *testing.F) {
	f.Add([]byte{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3})
	f.Add([]byte{255, 0, 16, 16, 16, 1, 200, 7, 90})
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int64 {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int64(b)
		}
		root := quota.Spec{Min: amounts(40), Max: amounts(40)}
		var leaves []string
		for i := range 2 + next()%3 {
			inner := quota.Spec{Name: fmt.Sprint("inner", i), Min: amounts(next() % 20), Max: amounts(20 + next()%20)}
			for j := range 1 + next()%3 {
				leaf := quota.Spec{Name: fmt.Sprint("leaf", i, j), Min: amounts(next() % 10), Max: amounts(10 + next()%20)}
				if next()%2 == 0 {
					leaf.LendLimit = amounts(next() % (leaf.Min[gpus] + 1))
				}
				leaves = append(leaves, leaf.Name)
				inner.Children = append(inner.Children, leaf)
			}
			root.Children = append(root.Children, inner)
		}
		tr := tree(t, root)
		empty := tr.Clone()
		type charge struct {
			leaf string
			n    int64
			soft bool
		}
		var charges []charge
		for range 20 {
			c := charge{leaves[next()%int64(len(leaves))], next() % 8, next()%2 == 0}
			if tr.Fits(c.leaf, amounts(c.n), c.soft) != nil {
				continue
			}
			if next()%4 == 0 {
				c.leaf = []string{"gone", "inner0"}[next()%2] // once it ran
			}
			tr.Add(c.leaf, amounts(c.n), c.soft)
			charges = append(charges, c)
		}
		var check func(s quota.Spec)
		check = func(s quota.Spec) {
			if name := s.Name; name != "" {
				assert.LessOrEqual(t, tr.Used(name)[gpus], s.Max[gpus], name)
			}
			for _, c := range s.Children {
				check(c)
			}
		}
		check(root)
		assert.LessOrEqual(t, tr.Used("root")[gpus], int64(40))
		for _, c := range charges {
			tr.Remove(c.leaf, amounts(c.n), c.soft)
		}
		assert.Equal(t, empty, tr)
	})
}
