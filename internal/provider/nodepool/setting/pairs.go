package setting

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/mapplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/known"
)

// Limits of the service for tags.
const (
	maxTagKey   = 128
	maxTagValue = 128
)

// pairs is a setting that is a map of strings, of which an empty one says that there are none.
func pairs(name, description string, validators []validator.Map, place func(*Values) *types.Map,
	read func(acs.NodePoolSpec) map[string]string, write func(map[string]string, *acs.NodePoolSpec)) setting {
	return of(name, schema.MapAttribute{
		MarkdownDescription: description, Optional: true, Computed: true, ElementType: types.StringType,
		PlanModifiers: []planmodifier.Map{mapplanmodifier.UseStateForUnknown()}, Validators: validators,
	}, place,
		func(ctx context.Context, spec acs.NodePoolSpec, _ types.Map) (types.Map, diag.Diagnostics) {
			return types.MapValueFrom(ctx, types.StringType, read(spec))
		},
		func(ctx context.Context, value types.Map, spec *acs.NodePoolSpec) diag.Diagnostics {
			texts := map[string]string{}
			diags := value.ElementsAs(ctx, &texts, false)
			if !diags.HasError() {
				write(texts, spec)
			}
			return diags
		})
}

// ownTag reports whether a tag is the provider's own.
func ownTag(t acs.Tag) bool { return t.Key == contract.OwnerTag || t.Key == contract.SettingsTag }

func tags() setting {
	return pairs("tags", "Tags of the instances. Empty: none but the provider's own, which are not shown."+newNodes+" Default: what the service has.",
		[]validator.Map{tagTexts{}}, func(v *Values) *types.Map { return &v.Tags },
		func(spec acs.NodePoolSpec) map[string]string {
			all := map[string]string{}
			for _, t := range spec.ScalingGroup.Tags {
				if !ownTag(t) {
					all[t.Key] = t.Value
				}
			}
			return all
		},
		func(texts map[string]string, spec *acs.NodePoolSpec) {
			list := slices.DeleteFunc(slices.Clone(spec.ScalingGroup.Tags), func(t acs.Tag) bool { return !ownTag(t) })
			for _, key := range slices.Sorted(maps.Keys(texts)) {
				list = append(list, acs.Tag{Key: key, Value: texts[key]})
			}
			spec.ScalingGroup.Tags = list
		})
}

func spotPriceLimit() setting {
	return pairs("spot_price_limit", "The most that a spot instance may cost in an hour, by instance type, such as `{ \"ecs.gn6v-c10g1.20xlarge\" = \"39.5\" }`. Only for `SpotWithPriceLimit`, and required there.",
		[]validator.Map{mapvalidator.ValueStringsAre(price{}), mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1))}, func(v *Values) *types.Map { return &v.SpotPriceLimit },
		func(spec acs.NodePoolSpec) map[string]string {
			limits := map[string]string{}
			for _, l := range spec.ScalingGroup.SpotPriceLimits {
				limits[l.InstanceType] = l.PriceLimit
			}
			return limits
		},
		func(limits map[string]string, spec *acs.NodePoolSpec) {
			list := []acs.SpotPriceLimit{}
			for instanceType, limit := range limits {
				list = append(list, acs.SpotPriceLimit{InstanceType: instanceType, PriceLimit: limit})
			}
			slices.SortFunc(list, func(a, b acs.SpotPriceLimit) int { return cmp.Compare(a.InstanceType, b.InstanceType) })
			spec.ScalingGroup.SpotPriceLimits = list
		})
}

// price checks that a text is a price.
type price struct{}

// decimal is how the service takes numbers, unlike "NaN", "0x10" and "1e3".
var decimal = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

func (price) Description(context.Context) string               { return "must be a price, such as 39.5" }
func (v price) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (price) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if !known.Set(req.ConfigValue) {
		return
	}
	text := req.ConfigValue.ValueString()
	if amount, err := strconv.ParseFloat(text, 64); err != nil || amount <= 0 || !decimal.MatchString(text) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid price", fmt.Sprintf("%q is no price of an hour: write a number such as \"39.5\".", text))
	}
}

// tagTexts checks tags as the service does.
type tagTexts struct{}

func (tagTexts) Description(context.Context) string               { return "must be tags that a pool may set" }
func (v tagTexts) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }
func (tagTexts) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	for key, element := range req.ConfigValue.Elements() {
		at := req.Path.AtMapKey(key)
		if ownTag(acs.Tag{Key: key}) {
			resp.Diagnostics.AddAttributeError(at, "Reserved tag", fmt.Sprintf("The tag %s is the provider's own: leave it out.", key))
		}
		value, ok := element.(types.String)
		for what, limited := range map[string]struct {
			text string
			most int
		}{"key": {key, maxTagKey}, "value": {value.ValueString(), maxTagValue}} {
			if what == "value" && (!ok || value.IsUnknown()) {
				continue
			}
			if fault := tagFault(limited.text, limited.most); fault != "" {
				resp.Diagnostics.AddAttributeError(at, "Invalid tag "+what, fmt.Sprintf("%q %s.", limited.text, fault))
			}
		}
	}
}

func tagFault(text string, most int) string {
	for _, prefix := range []string{"aliyun", "acs:"} {
		if strings.HasPrefix(text, prefix) {
			return fmt.Sprintf("begins with %q, which the service refuses", prefix)
		}
	}
	for _, part := range []string{"http://", "https://"} {
		if strings.Contains(text, part) {
			return fmt.Sprintf("contains %q, which the service refuses", part)
		}
	}
	if n := len([]rune(text)); n > most {
		return fmt.Sprintf("has %d characters; the service takes at most %d", n, most)
	}
	return ""
}
