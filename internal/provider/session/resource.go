package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// Of takes the session out of what the framework hands to a resource's or data
// source's Configure; it is nil before the provider is configured.
func Of(providerData any, diags *diag.Diagnostics) *Session {
	if providerData == nil {
		return nil
	}
	s, ok := providerData.(*Session)
	if !ok {
		diags.AddError("Wrong provider data", fmt.Sprintf("The provider handed over a %T. Please report this.", providerData))
	}
	return s
}

// Diagnostic is a finding of the ledger as a diagnostic; [diag.WithPath] gives it an attribute.
func Diagnostic(f ledger.Finding) diag.Diagnostic {
	if f.Error {
		return diag.NewErrorDiagnostic(f.Summary, f.Detail)
	}
	return diag.NewWarningDiagnostic(f.Summary, f.Detail)
}

// Diagnostics are findings of the ledger as diagnostics.
func Diagnostics(findings []ledger.Finding) (diags diag.Diagnostics) {
	for _, f := range findings {
		diags.Append(Diagnostic(f))
	}
	return diags
}

// Preflight is a finding about what an apply would meet as a diagnostic, an error only
// where the check is one.
func Preflight(f preflight.Finding, check Check) diag.Diagnostic {
	var d diag.Diagnostic = diag.NewErrorDiagnostic(f.Summary, f.Detail)
	if f.Warning || check != CheckError {
		d = diag.NewWarningDiagnostic(f.Summary, f.Detail)
	}
	if f.Attribute != "" {
		d = diag.WithPath(path.Root(f.Attribute), d)
	}
	return d
}

// Rights asks whether the kubeconfig's user may do what it takes to create, change and
// delete these objects. Where a plan cannot ask, it says nothing.
func (s *Session) Rights(ctx context.Context, objs ...*unstructured.Unstructured) diag.Diagnostics {
	return s.ask(func(client *kube.Client) []preflight.Finding { return preflight.Objects(ctx, client, objs) })
}

// Writes asks whether the cluster lets an object be written, see [preflight.Write]. Where a plan cannot ask, it says nothing.
func (s *Session) Writes(ctx context.Context, obj *unstructured.Unstructured, exists bool, title, attribute string) diag.Diagnostics {
	return s.ask(func(client *kube.Client) []preflight.Finding {
		return preflight.Write(ctx, client, obj, exists, title, attribute)
	})
}

// NodeRights asks whether the kubeconfig's user may change nodes, like [Session.Rights].
func (s *Session) NodeRights(ctx context.Context) diag.Diagnostics {
	return s.ask(func(client *kube.Client) []preflight.Finding { return preflight.NodeChange(ctx, client) })
}

// LabelRights asks whether the kubeconfig's user may label nodes, like [Session.Rights].
func (s *Session) LabelRights(ctx context.Context) diag.Diagnostics {
	return s.ask(func(client *kube.Client) []preflight.Finding { return preflight.NodeLabels(ctx, client) })
}

// EvictionRights asks whether the kubeconfig's user may cordon nodes and evict their pods, like [Session.Rights].
func (s *Session) EvictionRights(ctx context.Context) diag.Diagnostics {
	return s.ask(func(client *kube.Client) []preflight.Finding { return preflight.Evictions(ctx, client) })
}

func (s *Session) ask(question func(*kube.Client) []preflight.Finding) (diags diag.Diagnostics) {
	client, err := s.Kube()
	if err != nil || s.Ledger.Applying() {
		return nil
	}
	for _, f := range question(client) {
		diags.Append(Preflight(f, CheckError))
	}
	return diags
}

// Unread says why a data source cannot be read, as sentences for a diagnostic: while the provider's
// configuration is unknown, also how Terraform reads it later.
func Unread(err error) string {
	if errors.Is(err, ErrUnknown) {
		return Sentence(err) + " Name the resource that makes it known in depends_on, so that Terraform reads this at apply."
	}
	return Sentence(err)
}

// canceled says in our words what Go and client-go say of an interrupt.
var canceled = strings.NewReplacer("client rate limiter Wait returned an error: context canceled", "interrupted", "context canceled", "interrupted")

// Sentence makes a sentence of an error for a diagnostic.
func Sentence(err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) { // someone has interrupted Terraform
		text = canceled.Replace(text)
	}
	if apierrors.IsUnauthorized(err) {
		text += ": the API server does not know who asks; check the credentials of the kubeconfig's user, or log in again"
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if last, _ := utf8.DecodeLastRuneInString(text); last != '.' && last != '?' && last != '!' {
		text += "."
	}
	return text
}
