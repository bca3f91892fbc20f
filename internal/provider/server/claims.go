package server

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// claim is what a resource of a walk does with its object.
type claim string

const (
	creates claim = "creates"
	keeps   claim = "keeps"
	deletes claim = "deletes"
)

// claims are what the resources of one walk do with their objects. Terraform tells no
// resource about another, so two of them for one object are seen here alone, by the
// one that is planned second, whichever that is.
type claims struct {
	mu sync.Mutex
	of map[string][]claim
}

// forget begins a new walk.
func (c *claims) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = map[string][]claim{}
}

// add records a claim, and says what is wrong with it beside those before, "" for nothing.
func (c *claims) add(object string, now claim) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.of[object]
	c.of[object] = append(before, now)
	for _, was := range before {
		switch {
		case was != deletes && now != deletes:
			return fmt.Sprintf("Two resources of this configuration are one object, %s: each would overwrite or delete what the other has made. "+
				"Remove one of them, or give it another name.", object)
		case was == creates || now == creates:
			return fmt.Sprintf("One resource creates %s, and another deletes it in the same plan; nothing says which comes first. "+
				"When the resource was renamed, write a moved block with its old and its new address. "+
				"Instances of count shift when one is left out: use for_each.", object)
		}
	}
	return ""
}

// claimed records what a plan does with its object.
func (s *server) claimed(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest, resp *tfprotov6.PlanResourceChangeResponse) *tfprotov6.Diagnostic {
	if len(resp.RequiresReplace) > 0 {
		return nil // Terraform asks once more, for the new object
	}
	now, state := keeps, resp.PlannedState
	switch {
	case isNull(req.ProposedNewState):
		now, state = deletes, req.PriorState
	case isNull(req.PriorState):
		now = creates
	}
	object, at := s.object(ctx, req.TypeName, state)
	if object == "" {
		return nil
	}
	fault := s.claims.add(object, now)
	if fault == "" {
		return nil
	}
	return &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityError, Summary: "Two resources for one object", Detail: fault, Attribute: at}
}

// object identifies what a resource manages: by its name, and its namespace, where it has
// them, else as the only one in the cluster. It is "" as long as that is unknown.
func (s *server) object(ctx context.Context, typeName string, state *tfprotov6.DynamicValue) (object string, at *tftypes.AttributePath) {
	schema, ok := s.schemas()[typeName]
	if !ok {
		return "", nil
	}
	value, err := state.Unmarshal(schema.Type().TerraformType(ctx))
	var attributes map[string]tftypes.Value
	if err != nil || value.As(&attributes) != nil {
		return "", nil
	}
	var parts []string
	for _, name := range []string{"namespace", "name"} {
		attribute, ok := attributes[name]
		if !ok {
			continue
		}
		var text string
		if !attribute.IsKnown() || attribute.IsNull() || attribute.As(&text) != nil {
			return "", nil
		}
		parts, at = append(parts, text), tftypes.NewAttributePath().WithAttributeName(name)
	}
	if len(parts) == 0 {
		return typeName + ", of which a cluster has one", nil
	}
	return typeName + " " + strings.Join(parts, "/"), at
}

func isNull(value *tfprotov6.DynamicValue) bool {
	if value == nil {
		return true
	}
	null, err := value.IsNull()
	return err == nil && null
}
