package main

import (
	"fmt"
	"strings"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// target is what a user asks about.
type target struct{ namespace, name string }

// kinds are those that a user may write before a name, by each of their forms that kubectl knows, with
// their API group. What stands before a name and is none of them is a namespace.
var kinds = map[string]string{
	"pod": "", "pods": "", "po": "",
	"job": "batch", "jobs": "batch",
	"pytorchjob": contract.KubeflowGroup, "pytorchjobs": contract.KubeflowGroup,
	"mpijob": contract.KubeflowGroup, "mpijobs": contract.KubeflowGroup,
	"jobset": contract.JobSetGroup, "jobsets": contract.JobSetGroup,
	"trainjob": contract.TrainerGroup, "trainjobs": contract.TrainerGroup,
	"podgroup": contract.PodGroupGroup, "podgroups": contract.PodGroupGroup, "pg": contract.PodGroupGroup, "pgs": contract.PodGroupGroup,
}

// isKind reports whether a text is a kind, as in job, jobs, job.batch and jobs.v1.batch.
func isKind(text string) bool {
	name, rest, qualified := strings.Cut(strings.ToLower(text), ".")
	group, known := kinds[name]
	return known && (!qualified || rest == group || strings.HasSuffix(rest, "."+group))
}

// parseTarget reads NAME, NAMESPACE/NAME or KIND/NAME. given is the namespace that the user has asked
// for, "" for none, and current the one of the kubeconfig. A text that may be two things is refused.
func parseTarget(text, given, current string) (target, error) {
	before, name, slashed := strings.Cut(text, "/")
	if !slashed {
		before, name = "", text
	}
	switch {
	case name == "" || slashed && before == "" || strings.Contains(name, "/"):
		return target{}, fmt.Errorf("%q is none of NAME, NAMESPACE/NAME and KIND/NAME", text)
	case before == "" || isKind(before):
		return target{current, name}, nil
	case strings.Contains(before, "."):
		return target{}, fmt.Errorf("%q is no kind that has gangs: there are pod, job, pytorchjob, mpijob, jobset, trainjob and podgroup", before)
	case given != "" && given != before:
		return target{}, fmt.Errorf("%s is in namespace %s, and -n says %s: leave out one of them", text, before, given)
	}
	return target{before, name}, nil
}
