package trainingjob

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// single is the property of an attribute that is an object with attributes, of a field that is nil without it.
func single[M, S, N, T any](of types.ObjectType, attributes []attribute[N, T], value func(*M) *types.Object, field func(*S) **T) property[M, S] {
	return property[M, S]{
		value: func(m *M) attr.Value { return *value(m) },
		read: func(r *reader, at path.Path, m *M, s *S) {
			object := *value(m)
			if object.IsNull() || object.IsUnknown() {
				return
			}
			var n N
			t := new(T)
			r.diags.Append(object.As(r.ctx, &n, basetypes.ObjectAsOptions{})...)
			readAll(r, attributes, at, &n, t)
			*field(s) = t
		},
		take: func(m *M, s S) {
			*value(m) = types.ObjectNull(of.AttrTypes)
			if t := *field(&s); t != nil {
				*value(m) = objectOf(of, attributes, *t)
			}
		},
		part: func(s S) any { return *field(&s) },
	}
}
