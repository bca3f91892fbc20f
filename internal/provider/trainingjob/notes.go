package trainingjob

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/written"
)

// notes are the annotations from which an import makes what the job's object does not
// tell: how the user wrote the attributes.
func (m model) notes(ctx context.Context, of tfsdk.State, spec job.Spec) (map[string]string, error) {
	fail := func(err error) (map[string]string, error) {
		return nil, fmt.Errorf("describe job %s: %w", spec.ID(), err)
	}
	notes := map[string]string{}
	obj, err := spec.Render()
	if err != nil {
		return fail(err)
	}
	var derived model
	var diags diag.Diagnostics
	diags.Append(written.Blank(ctx, of, &derived)...)
	diags.Append(derived.takeOver(obj)...)
	if diags.HasError() {
		return fail(fmt.Errorf("%s", diags[0].Detail()))
	}
	text, err := written.Text(ctx, of, m, derived)
	if err != nil {
		return fail(err)
	}
	if text != "" {
		notes[contract.SettingsAnnotation] = text
	}
	return notes, nil
}

// noted reports whether a job carries these notes and no others. Jobs that someone else
// submitted and that were imported carry none: for notes alone they are left as they are.
func noted(obj *unstructured.Unstructured, notes map[string]string) bool {
	if obj.GetLabels()[contract.ManagedByLabel] != contract.ManagedByValue {
		return true
	}
	for _, key := range []string{contract.PlannedPlacementAnnotation, contract.SettingsAnnotation} {
		if obj.GetAnnotations()[key] != notes[key] {
			return false
		}
	}
	return true
}
