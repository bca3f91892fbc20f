package instancetypes

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/function"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
)

// NewFunction returns the function instance_type.
func NewFunction() function.Function { return describe{} }

type describe struct{}

func (describe) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = "instance_type"
}

func (describe) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: "What the catalogue knows of a GPU instance type.",
		MarkdownDescription: "Returns what the provider's built-in catalogue knows of a GPU instance type: an object with the attributes that " +
			"`instance_types` of the data source `gpuplan_instance_types` lists. It fails for a type that the catalogue does not have.",
		Parameters: []function.Parameter{function.StringParameter{Name: "name", MarkdownDescription: "Name of the instance type, `ecs.gn6v-c10g1.20xlarge`."}},
		Return:     function.ObjectReturn{AttributeTypes: factTypes()},
	}
}

// Run looks the type up.
func (describe) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	var name string
	if resp.Error = req.Arguments.Get(ctx, &name); resp.Error != nil {
		return
	}
	it, ok := catalog.Lookup(name)
	if !ok {
		resp.Error = function.NewArgumentFuncError(0, strings.TrimRight(catalog.Unknown(name), ".?")) // Terraform ends the sentence
		return
	}
	resp.Error = resp.Result.Set(ctx, factsOf(it))
}
