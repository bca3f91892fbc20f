package provider_test

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	fwresource "github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
)

// described is an attribute of any schema.
type described interface{ GetMarkdownDescription() string }

// limitWords are how validators say a limit.
var limitWords = regexp.MustCompile(`(?:between|and|least|most) (-?\d+)`)

// anyway are limits of ports and of fields of Kubernetes, and what only keeps out slips of the keyboard: no page needs them.
var anyway = []int64{-1, 0, 1, 65534, 65535, math.MinInt32, math.MaxInt32, 1_000_000_000_000}

// Whoever reads a page learns between which limits a number, a list or a name has to be, and what it is by default.
func TestLimitsAndDefaultsAreDescribed(t *testing.T) {
	p := provider.New("test", provider.Command{})()
	for _, create := range p.Resources(t.Context()) {
		r := create()
		var meta fwresource.MetadataResponse
		r.Metadata(t.Context(), fwresource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		var s fwresource.SchemaResponse
		r.Schema(t.Context(), fwresource.SchemaRequest{}, &s)
		for name, a := range s.Schema.Attributes {
			limits(t, "resource "+meta.TypeName+"."+name, a)
		}
	}
	for _, create := range p.DataSources(t.Context()) {
		d := create()
		var meta datasource.MetadataResponse
		d.Metadata(t.Context(), datasource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		var s datasource.SchemaResponse
		d.Schema(t.Context(), datasource.SchemaRequest{}, &s)
		for name, a := range s.Schema.Attributes {
			limits(t, "data source "+meta.TypeName+"."+name, a)
		}
	}
}

// How long an operation may take unless the user says is in the page of each resource.
func TestTimeoutsAreDescribed(t *testing.T) {
	for _, create := range provider.New("test", provider.Command{})().Resources(t.Context()) {
		r := create()
		var meta fwresource.MetadataResponse
		r.Metadata(t.Context(), fwresource.MetadataRequest{ProviderTypeName: "gpuplan"}, &meta)
		var s fwresource.SchemaResponse
		r.Schema(t.Context(), fwresource.SchemaRequest{}, &s)
		held, ok := reflect.ValueOf(r).Elem().FieldByName("Default").Interface().(lifecycle.Limits)
		require.True(t, ok, meta.TypeName)
		timeouts, ok := s.Schema.Attributes["timeouts"].(schema.NestedAttribute)
		require.True(t, ok, meta.TypeName)
		for operation, limit := range map[string]time.Duration{"create": held.Create, "update": held.Update, "delete": held.Delete} {
			a := timeouts.GetNestedObject().GetAttributes()[operation]
			require.NotNil(t, a, "%s.%s", meta.TypeName, operation)
			assert.Contains(t, a.GetDescription()+a.GetMarkdownDescription(), fmt.Sprintf("efault `%.0fm`", limit.Minutes()), "%s.%s", meta.TypeName, operation)
		}
	}
}

// limits checks the description of an attribute, and those in it.
func limits(t *testing.T, name string, a described) {
	for _, of := range []string{"Int64", "Int32", "String", "List", "Set", "Map"} {
		method := reflect.ValueOf(a).MethodByName(of + "Validators")
		if !method.IsValid() {
			continue
		}
		validators := method.Call(nil)[0]
		for i := range validators.Len() {
			says, _ := validators.Index(i).Interface().(validator.Describer)
			text := says.Description(t.Context())
			if strings.HasPrefix(text, "element ") { // of what is listed, which has names of its own
				continue
			}
			for _, m := range limitWords.FindAllStringSubmatch(text, -1) {
				limit, err := strconv.ParseInt(m[1], 10, 64)
				if err == nil && !slices.Contains(anyway, limit) {
					assert.Regexp(t, `\b`+m[1]+`\b`, strings.ReplaceAll(a.GetMarkdownDescription(), ",", ""), "%s: %s", name, text)
				}
			}
		}
	}
	for _, of := range []string{"Int64", "Int32", "String", "Bool"} {
		method := reflect.ValueOf(a).MethodByName(of + "DefaultValue")
		if !method.IsValid() || method.Call(nil)[0].IsNil() {
			continue
		}
		text := method.Call(nil)[0].Interface().(validator.Describer).Description(t.Context())
		_, value, found := strings.Cut(text, "value defaults to ")
		require.True(t, found, text)
		assert.Regexp(t, "(?i)default:? `?"+value+"\\b|`?"+value+"`? \\(default", a.GetMarkdownDescription(), "%s: %s", name, text)
	}
	if nested, ok := a.(schema.NestedAttribute); ok { // those of data sources are the same
		for inner, a := range nested.GetNestedObject().GetAttributes() {
			limits(t, name+"."+inner, a)
		}
	}
}
