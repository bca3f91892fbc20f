package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// draws makes a job take so much of what its namespace has so much left of.
func draws(j ledger.Job, of, asked, left string) ledger.Job {
	j.Draws = append(j.Draws, ledger.Draw{Of: of, Asked: resource.MustParse(asked), Left: resource.MustParse(left)})
	return j
}

// Jobs that fit beside each other on the nodes, and not into what their namespace has left.
func TestShortages(t *testing.T) {
	const pods, cpu = "of pods in ResourceQuota default/q", "of requests.cpu in ResourceQuota default/q"
	one := machines(t, "v100", 1)
	a, b, c := job(one, "a", 1), job(one, "b", 1), job(one, "c", 1)
	for name, test := range map[string]struct {
		cluster cluster
		visits  []visit
		want    []string
	}{
		"room for both":         {cluster{nodes: one}, []visit{plan(draws(a, pods, "1", "2")), plan(draws(b, pods, "1", "2"))}, nil},
		"room for one":          {cluster{nodes: one}, []visit{plan(draws(a, pods, "1", "1")), plan(draws(b, pods, "1", "1"))}, []string{"warning Waits default/b default/a"}},
		"of two things":         {cluster{nodes: one}, []visit{plan(draws(draws(a, pods, "1", "1"), cpu, "500m", "1")), plan(draws(draws(b, pods, "1", "1"), cpu, "501m", "1"))}, []string{"warning Waits default/b default/a"}},
		"of different things":   {cluster{nodes: one}, []visit{plan(draws(a, pods, "1", "1")), plan(draws(b, cpu, "1", "1"))}, nil},
		"that must not wait":    {cluster{nodes: one}, []visit{plan(draws(a, pods, "1", "1")), plan(immediately(draws(b, pods, "1", "1")))}, []string{"error Waits default/b default/a"}},
		"unchecked":             {cluster{nodes: one}, []visit{plan(checked(draws(a, pods, "1", "1"), ledger.Ignore)), plan(checked(draws(b, pods, "1", "1"), ledger.Ignore))}, nil},
		"room for two of three": {cluster{nodes: one}, []visit{plan(draws(a, pods, "2", "4")), plan(draws(b, pods, "1", "4")), plan(draws(c, pods, "2", "4"))}, []string{"warning Waits default/c default/a default/b"}},
		"where a job leaves":    {cluster{nodes: one, own: []string{"default/x"}}.runs("default/x", 1), []visit{plan(draws(a, pods, "1", "1")), plan(draws(b, pods, "1", "1")), leave("default/x")}, nil},
		"where a job stays":     {cluster{nodes: one, own: []string{"default/x"}}.runs("default/x", 1), []visit{plan(draws(a, pods, "1", "1")), plan(draws(b, pods, "1", "1")), keep("default/x")}, []string{"warning Waits default/b default/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			orders(test.visits, func(order []visit) {
				found := look(test.cluster, order)
				assert.Equal(t, test.want, describe(meetingsAside(found)))
			})
		})
	}
}

// meetingsAside leaves out that jobs are planned on the same GPUs.
func meetingsAside(found []ledger.Finding) (rest []ledger.Finding) {
	for _, f := range anyPlace(found) {
		if f.Kind != ledger.SameGPUs {
			rest = append(rest, f)
		}
	}
	return rest
}
