package trainingjob

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// attribute is all that the provider knows of one attribute. M is the model that has it, S the
// job, or the role of a job, that it describes. To add an attribute, write down here what it is
// ([jobAttributes], [roleAttributes], [containerAttributes]), and give it a field in the model.
type attribute[M, S any] struct {
	name   string
	schema schema.Attribute
	// property is what of S the attribute says; none for a setting that only concerns the
	// provider, which has a value at most, and for a result.
	property property[M, S]
	// change is what it means for a job that exists to have another property.
	change change
	// reruns reports of a setting, which says nothing of S, whether it differs so that a job is replaced; none for any other.
	reruns func(before, wanted *M) bool
	// shapes means that nothing of a job can be checked, or filled in, while the attribute is unknown.
	shapes bool
	// places means that nothing can be placed while the attribute is unknown.
	places bool
	// initial gives a new job the property where the configuration says nothing of it; one that
	// exists keeps what it has. None for a property that is zero then, of any job.
	initial func(s *S)
}

// change is what a difference between two jobs means for the one that exists.
type change int

const (
	// replaces makes a new job, because a running gang cannot change.
	replaces change = iota
	// inPlace leaves the job and changes its object.
	inPlace
	// inPlaceButJobSet does, except that nobody can change it of a JobSet.
	inPlaceButJobSet
)

// property translates between an attribute in its model M and a part of S.
type property[M, S any] struct {
	// value is the attribute.
	value func(*M) attr.Value
	// read sets the part as the attribute says, and leaves it when the attribute is null. at is
	// where the attribute is written.
	read func(r *reader, at path.Path, m *M, s *S)
	// take sets the attribute as the part is.
	take func(m *M, s S)
	// part is what is compared to find a difference.
	part func(s S) any
}

// says is the property of an attribute that is one field.
func says[M, S any, V attr.Value, T any](k kind[V, T], value func(*M) *V, field func(*S) *T) property[M, S] {
	return property[M, S]{
		value: func(m *M) attr.Value { return *value(m) },
		read: func(r *reader, at path.Path, m *M, s *S) {
			switch v := *value(m); {
			case v.IsNull():
			case v.IsUnknown():
				*field(s) = k.unknown
			default:
				*field(s) = k.field(r, at, v)
			}
		},
		take: func(m *M, s S) {
			var zero T
			*value(m) = k.zero
			if part := *field(&s); !apiequality.Semantic.DeepEqual(part, zero) {
				*value(m) = k.value(part)
			}
		},
		part: func(s S) any { return *field(&s) },
	}
}

func text[M, S any, T ~string](value func(*M) *types.String, field func(*S) *T) property[M, S] {
	return says(texts[T](), value, field)
}

func list[M, S any](value func(*M) *types.List, field func(*S) *[]string) property[M, S] {
	return says(lists, value, field)
}

func dictionary[M, S any](value func(*M) *types.Map, field func(*S) *map[string]string) property[M, S] {
	return says(dictionaries, value, field)
}

func yes[M, S any](value func(*M) *types.Bool, field func(*S) *bool) property[M, S] {
	return says(flags, value, field)
}

func count[M, S any](value func(*M) *types.Int64, field func(*S) *int64) property[M, S] {
	return says(counts, value, field)
}

func smallCount[M, S any](value func(*M) *types.Int32, field func(*S) *int32) property[M, S] {
	return says(smallCounts, value, field)
}

func bound[M, S any](value func(*M) *types.Int32, field func(*S) **int32) property[M, S] {
	return says(bounds, value, field)
}

func quantity[M, S any](value func(*M) *types.String, field func(*S) *resource.Quantity) property[M, S] {
	return says(quantities, value, field)
}

// readAll sets what the attributes in m say of s, and notes which of those that decide about
// the placement are unknown. at is the object that they are attributes of.
func readAll[M, S any](r *reader, attributes []attribute[M, S], at path.Path, m *M, s *S) {
	for _, a := range attributes {
		if a.property.read == nil {
			continue
		}
		at := at.AtName(a.name)
		if a.places {
			r.known(at, a.property.value(m))
		}
		a.property.read(r, at, m, s)
	}
}

// schemas are the attributes of an object as Terraform has them.
func schemas[M, S any](attributes []attribute[M, S]) map[string]schema.Attribute {
	all := map[string]schema.Attribute{}
	for _, a := range attributes {
		all[a.name] = a.schema
	}
	return all
}

// typeOf is the type of an object with these attributes.
func typeOf(attributes map[string]schema.Attribute) types.ObjectType {
	all := map[string]attr.Type{}
	for name, a := range attributes {
		all[name] = a.GetType()
	}
	return types.ObjectType{AttrTypes: all}
}

// objectOf is an object with attributes that say s.
func objectOf[M, S any](of types.ObjectType, attributes []attribute[M, S], s S) types.Object {
	var m M
	for _, a := range attributes {
		a.property.take(&m, s)
	}
	return types.ObjectValueMust(of.AttrTypes, values(attributes, &m))
}

// values are the attributes that m has.
func values[M, S any](attributes []attribute[M, S], m *M) map[string]attr.Value {
	all := map[string]attr.Value{}
	for _, a := range attributes {
		all[a.name] = a.property.value(m)
	}
	return all
}

// undecided names the attributes of a job that are unknown until apply and whose change needs a new one:
// Terraform accepts no replacement then that it was not told of.
func undecided(ctx context.Context, m model) (names []string) {
	note := func(name string, value attr.Value) {
		if !known.Wholly(ctx, value) {
			names = append(names, name)
		}
	}
	for _, a := range jobAttributes {
		if a.property.part != nil && a.change == replaces {
			note(a.name, a.property.value(&m))
		}
	}
	for _, a := range containerAttributes {
		note(a.name, a.property.value(&m.container))
	}
	return names
}

// rerun names the settings that differ so that a job is replaced, whatever it is.
func rerun(before, wanted model) (names []string) {
	for _, a := range jobAttributes {
		if a.reruns != nil && a.reruns(&before, &wanted) {
			names = append(names, a.name)
		}
	}
	return names
}

// shaping names the attributes without which nothing of a job can be checked, or filled in.
func shaping() (names []string) {
	for _, a := range jobAttributes {
		if a.shapes {
			names = append(names, a.name)
		}
	}
	return names
}

// differing returns the attributes in which two jobs differ.
func differing(a, b job.Spec) (found []jobAttribute) {
	a, b = a.Complete(), b.Complete()
	for _, attribute := range jobAttributes {
		if part := attribute.property.part; part != nil && !apiequality.Semantic.DeepEqual(part(a), part(b)) {
			found = append(found, attribute)
		}
	}
	return found
}

// differences names the attributes in which two jobs differ, those that need a new job apart
// from those that can change in place.
func differences(a, b job.Spec) (replace, change []string) {
	for _, attribute := range differing(a, b) {
		switch {
		case attribute.change == inPlace || attribute.change == inPlaceButJobSet && !b.Framework.AsJobSet():
			change = append(change, attribute.name)
		default:
			replace = append(replace, attribute.name)
		}
	}
	return replace, change
}
