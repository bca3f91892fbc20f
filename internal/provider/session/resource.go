package session

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
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

// Sentence makes a sentence of an error for a diagnostic.
func Sentence(err error) string {
	text := err.Error()
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if last, _ := utf8.DecodeLastRuneInString(text); last != '.' && last != '?' && last != '!' {
		text += "."
	}
	return text
}
