package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/planfile"
)

// Notes are what the processes of one command leave to those that it starts when they have ended.
type Notes interface {
	Note(words []string)
	Noted() []string
}

// saidKey is the key in the private data of a plan under which it keeps which warnings it has given.
const saidKey = "said"

// earlier returns the warnings that the plan which the command carries out has given. It knows them from
// the file of the plan, or from the process that made it for the same command.
func earlier(command Command) map[string]bool {
	var all []string
	if command.Plan != "" {
		private, err := planfile.Private(command.Plan)
		if err != nil {
			return nil // what it has said is said again
		}
		for _, data := range private {
			_, said := cutSaid(data)
			all = append(all, said...)
		}
	} else if command.Notes != nil {
		all = command.Notes.Noted()
	}
	known := make(map[string]bool, len(all))
	for _, warning := range all {
		known[warning] = true
	}
	return known
}

// saidInPlan leaves out the warnings of a plan that are said already, and keeps the others for the apply.
func (s *server) saidInPlan(req *tfprotov6.PlanResourceChangeRequest, resp *tfprotov6.PlanResourceChangeResponse) {
	resp.Diagnostics = slices.DeleteFunc(resp.Diagnostics, func(d *tfprotov6.Diagnostic) bool {
		return warns(d) && (s.command.Plan != "" || s.earlier()[digest(d)])
	})
	resp.PlannedPrivate, _ = cutSaid(resp.PlannedPrivate)
	if isNull(req.PriorState) && len(req.PriorPrivate) > 0 {
		return // what takes the place of another one: Terraform shows no warnings of that
	}
	var said []string
	for _, d := range resp.Diagnostics {
		if warns(d) {
			said = append(said, digest(d))
		}
	}
	if len(said) == 0 {
		return
	}
	if s.command.Notes != nil {
		s.command.Notes.Note(said)
	}
	resp.PlannedPrivate = putSaid(resp.PlannedPrivate, said)
}

// ApplyResourceChange changes a resource. What the plan has warned of it does not say again.
func (s *server) ApplyResourceChange(ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	clean, said := *req, []string(nil)
	clean.PlannedPrivate, said = cutSaid(req.PlannedPrivate)
	resp, err := s.ProviderServer.ApplyResourceChange(ctx, &clean)
	if err != nil {
		return nil, err
	}
	resp.Diagnostics = slices.DeleteFunc(resp.Diagnostics, func(d *tfprotov6.Diagnostic) bool {
		return warns(d) && (slices.Contains(said, digest(d)) || s.earlier()[digest(d)])
	})
	return resp, nil
}

func warns(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityWarning }

// digest tells a text from others.
func digest(d *tfprotov6.Diagnostic) string {
	at := ""
	if d.Attribute != nil {
		at = d.Attribute.String()
	}
	sum := sha256.Sum256([]byte(at + "\x00" + d.Summary + "\x00" + d.Detail))
	return hex.EncodeToString(sum[:16])
}

// cutSaid takes the warnings that a plan has kept out of private data, which is as the framework writes it.
func cutSaid(private []byte) (rest []byte, said []string) {
	var data map[string][]byte
	if json.Unmarshal(private, &data) != nil || data[saidKey] == nil || json.Unmarshal(data[saidKey], &said) != nil {
		return private, nil
	}
	delete(data, saidKey)
	if len(data) == 0 {
		return nil, said
	}
	rest, err := json.Marshal(data)
	if err != nil {
		return private, nil
	}
	return rest, said
}

// putSaid puts warnings into private data.
func putSaid(private []byte, said []string) []byte {
	data := map[string][]byte{}
	if len(private) > 0 && json.Unmarshal(private, &data) != nil {
		return private
	}
	text, err := json.Marshal(said)
	if err != nil {
		return private
	}
	data[saidKey] = text
	with, err := json.Marshal(data)
	if err != nil {
		return private
	}
	return with
}
