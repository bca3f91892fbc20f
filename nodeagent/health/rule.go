package health

import (
	"cmp"
	"fmt"

	"github.com/gpuplan/terraform-provider-gpuplan/nodeagent/hardware"
)

// Class is what a fault does to a GPU, and how it ends. Classes are ordered, the worst last.
type Class uint8

// Classes of faults.
const (
	// Harmless: a program's fault, or of no consequence.
	Harmless Class = iota
	// Warning: the GPU dealt with it, but it must not go on happening.
	Warning
	// Failing: work on the GPU fails while this lasts.
	Failing
	// NeedsReset: work on the GPU fails, or gives wrong results, until it is reset.
	NeedsReset
	// Broken: as NeedsReset, and a reset will hardly help.
	Broken
)

var classNames = [...]string{Harmless: "Harmless", Warning: "Warning", Failing: "Failing", NeedsReset: "NeedsReset", Broken: "Broken"}

// String is the class's name, as it is published.
func (c Class) String() string { return classNames[c] }

// ClassOf reads a class's name. What is not known is as bad as it can be without a reset.
func ClassOf(name string) Class {
	for c, n := range classNames {
		if n == name {
			return Class(c)
		}
	}
	return Failing
}

// Rule says what a signal means.
type Rule struct {
	Class Class
	// Meaning are the words for it where the signal has none of its own.
	Meaning string
}

// Rules are the rules for signals other than XIDs.
var Rules = map[hardware.Kind]Rule{
	hardware.Marked:           {Failing, "marked in the hardware description"},
	hardware.Lost:             {NeedsReset, "the GPU has fallen off the bus"},
	hardware.NoAnswer:         {Failing, "the GPU does not answer"},
	hardware.Vanished:         {Failing, "the driver does not list the GPU any more"},
	hardware.Duplicate:        {Failing, "the GPU has the identity of another"},
	hardware.ResetRequired:    {Failing, "the driver asks for a reset"},
	hardware.ActionRequired:   {Failing, "the driver asks for an action"},
	hardware.UncorrectableECC: {Failing, "new uncorrectable memory errors"},
	hardware.RowRemapFailed:   {Broken, "a faulty memory row could not be replaced"},
	hardware.RowRemapPending:  {Warning, "a faulty memory row will be replaced at the next reset"},
	hardware.PagesPending:     {Warning, "faulty memory pages will be retired at the next reset"},
	hardware.NVLinkDown:       {Warning, "NVLinks are down"},
	hardware.FabricNotReady:   {Failing, "the GPU has not joined its NVSwitch fabric"},
	hardware.FabricUnhealthy:  {Failing, "the NVSwitch fabric has no good route to the GPU"},
	hardware.FabricDegraded:   {Warning, "the NVSwitch fabric gives the GPU less than its bandwidth"},
	hardware.PCIeDegraded:     {Warning, "the PCI Express connection is slower than it could be"},
	hardware.Overheated:       {Warning, "the GPU is hot and slows down"},
}

// RuleOf returns the rule for a signal.
func RuleOf(s hardware.Signal) Rule {
	if s.Kind == hardware.XID {
		return xidRule(s.Number)
	}
	if rule, ok := Rules[s.Kind]; ok {
		return rule
	}
	return Rule{Warning, string(s.Kind)}
}

// Code names the fault of a signal for programs: "XID79", "RowRemapFailed".
func Code(s hardware.Signal) string {
	if s.Kind == hardware.XID {
		return fmt.Sprintf("XID%d", s.Number)
	}
	return string(s.Kind)
}

// message names the fault of a signal for people.
func message(s hardware.Signal) string {
	words := cmp.Or(s.Detail, RuleOf(s).Meaning)
	if s.Kind == hardware.XID {
		return fmt.Sprintf("XID %d: %s", s.Number, words)
	}
	return words
}
