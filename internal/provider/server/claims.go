package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"
)

// claims are the objects that the resources of one walk will have. Terraform tells no
// resource about another, so two of them for one object are seen here alone, by the
// one that is planned second, whichever that is.
type claims struct {
	mu      sync.Mutex
	objects map[string]bool
	deletes map[string]bool // of objects in Terraform's state, whether the plan deletes them
}

// forget begins a new walk.
func (c *claims) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.deletes = map[string]bool{}, map[string]bool{}
}

// add records an object, and reports whether no other resource has it.
func (c *claims) add(object string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.objects[object]
	c.objects[object] = true
	return !taken
}

// hold records an object in Terraform's state, and whether the plan deletes it. It reports whether
// no other address has it there, or all of them delete it.
func (c *claims) hold(object string, deletes bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	others, twice := c.deletes[object]
	c.deletes[object] = deletes
	return !twice || others && deletes
}

// held reports an object that Terraform's state has at two addresses, of which not both delete it.
func (s *server) held(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest) *tfprotov6.Diagnostic {
	if isNull(req.PriorState) {
		return nil
	}
	object, at := s.object(ctx, req.TypeName, req.PriorState)
	if object == "" || s.claims.hold(object, isNull(req.ProposedNewState)) {
		return nil
	}
	return &tfprotov6.Diagnostic{
		Severity: tfprotov6.DiagnosticSeverityError, Summary: "One object at two addresses", Attribute: at,
		Detail: fmt.Sprintf("Terraform's state has one object at two addresses, %s, as after a plan with -target in which names changed, or an import of what another address has: each would overwrite or delete what the other has made. "+
			"Remove one of them from the state with `terraform state rm`, the one that the configuration has no more or gives another name, and plan again: nothing of the object is lost by that. Of two import blocks take one away instead. "+
			"Where both are one address, of which one object is deposed, as after a replacement with create_before_destroy that was cut off, remove that address: the next apply goes on with what this configuration has made.", object),
	}
}

// visited is the key in the private data of a plan of a resource which exists and stays. Terraform
// hands it back when it asks once more, for the object that replaces it on request (-replace,
// replace_triggered_by), and to no resource that is new or replaced for an attribute.
const visited = "planned"

// marked returns private data with or without that key.
func marked(private []byte, with bool) []byte {
	keys := map[string][]byte{}
	if len(private) > 0 && json.Unmarshal(private, &keys) != nil {
		return private // the framework wrote it
	}
	if delete(keys, visited); with {
		keys[visited] = []byte(`"yes"`)
	}
	if len(keys) == 0 {
		return nil
	}
	out, err := json.Marshal(keys)
	if err != nil {
		return private
	}
	return out
}

// isMarked reports whether private data has it.
func isMarked(private []byte) bool {
	var keys map[string][]byte
	return json.Unmarshal(private, &keys) == nil && keys[visited] != nil
}

// claimed records the object that a plan leads to. One that is deleted is nobody's: when
// another resource creates it in the same plan, each of them finds out at apply.
func (s *server) claimed(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest, resp *tfprotov6.PlanResourceChangeResponse) *tfprotov6.Diagnostic {
	switch exists := !isNull(req.PriorState); {
	case isNull(req.ProposedNewState):
		return nil
	case len(resp.RequiresReplace) > 0:
		resp.PlannedPrivate = marked(resp.PlannedPrivate, false)
		return nil // Terraform asks once more, for the new object
	case exists:
		resp.PlannedPrivate = marked(resp.PlannedPrivate, true)
	case isMarked(req.PriorPrivate):
		return nil
	}
	object, at := s.object(ctx, req.TypeName, resp.PlannedState)
	if object == "" || s.claims.add(object) {
		return nil
	}
	return &tfprotov6.Diagnostic{
		Severity: tfprotov6.DiagnosticSeverityError, Summary: "Two resources for one object", Attribute: at,
		Detail: fmt.Sprintf("Two resources of this configuration are one object, %s: each would overwrite or delete what the other has made. "+
			"Remove one of them, or give it another name.", object),
	}
}

// object identifies what a resource manages: by its name, and its namespace, where it has
// them, else as the only one in the cluster, or as the one that its type is for. It is "" as long as that is unknown.
func (s *server) object(ctx context.Context, typeName string, state *tfprotov6.DynamicValue) (object string, at *tftypes.AttributePath) {
	if object, ok := s.only()[typeName]; ok {
		return object, nil
	}
	schema, ok := s.schemas()[typeName]
	if !ok {
		return "", nil
	}
	var attributes map[string]msgpack.RawMessage
	if isNull(state) || msgpack.Unmarshal(state.MsgPack, &attributes) != nil {
		return "", nil
	}
	var parts []string
	for _, name := range []string{"namespace", "name"} {
		kind, err := schema.TypeAtTerraformPath(ctx, tftypes.NewAttributePath().WithAttributeName(name))
		if err != nil {
			continue
		}
		attribute, err := tfprotov6.DynamicValue{MsgPack: attributes[name]}.Unmarshal(kind.TerraformType(ctx))
		var text string
		if err != nil || !attribute.IsKnown() || attribute.IsNull() || attribute.As(&text) != nil {
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
