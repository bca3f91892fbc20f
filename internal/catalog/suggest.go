package catalog

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Unknown says in sentences that the catalogue has no instance type of that name, and which are close.
func Unknown(name string) string {
	text := fmt.Sprintf("There is no GPU instance type %q.", name)
	if Incomplete(name) {
		text = fmt.Sprintf("The GPUs of instance type %q are not in this provider's catalogue, so nothing could be planned on its nodes.", name)
	}
	near := Suggest(name)
	if len(near) == 0 {
		return text + " The data source gpuplan_instance_types lists those that there are."
	}
	return text + " Did you mean " + strings.Join(near, ", ") + "?"
}

// Suggest returns up to three names of instance types that are closest to the given
// one by edit distance, the closest first, for the text of an error. Types of another family are none of
// them where there is the one that is asked for, since they have other GPUs, and else those whose families' names are far:
// every name begins and ends alike.
func Suggest(name string) []string {
	names := load().typeNames
	there := slices.ContainsFunc(names, func(candidate string) bool { return family(candidate) == family(name) })
	return Nearest(name, slices.DeleteFunc(slices.Clone(names), func(candidate string) bool {
		if there {
			return family(candidate) != family(name)
		}
		return len(Nearest(shape(name), []string{shape(candidate)}, 1)) == 0
	}), 3)
}

// family is the part of an instance type's name that tells the GPUs, "gn6v" of "ecs.gn6v-c10g1.20xlarge".
func family(name string) string {
	name, _, _ = strings.Cut(shape(name), "-")
	return name
}

// shape is the family with the CPUs of a GPU, or the GPUs, "gn6v-c10g1" of "ecs.gn6v-c10g1.20xlarge".
func shape(name string) string {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "ecs."), ".")
	return name
}

// Nearest sorts candidates by distance from a name and then by name, and drops those from
// which less than half of the name could be meant.
func Nearest(name string, candidates []string, limit int) []string {
	type scored struct {
		name     string
		distance int
	}
	var all []scored
	for _, c := range candidates {
		if d := distance(name, c); d <= max(len(name), len(c))/2 {
			all = append(all, scored{c, d})
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].distance != all[j].distance {
			return all[i].distance < all[j].distance
		}
		return all[i].name < all[j].name
	})
	var names []string
	for _, s := range all[:min(limit, len(all))] {
		names = append(names, s.name)
	}
	return names
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
