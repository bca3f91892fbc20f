package health

// The driver's error numbers after NVIDIA's Xid catalog
// (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Numbers in none
// of these are warnings.
var (
	// resetXIDs: the catalog asks for a reset of the GPU or a reboot of the node.
	resetXIDs = map[uint64]string{
		46:  "the GPU stopped processing",
		48:  "double-bit ECC error",
		62:  "internal micro-controller halt",
		74:  "NVLink error",
		79:  "the GPU has fallen off the bus",
		95:  "uncontained memory error",
		109: "context switch timeout",
		110: "security fault",
		119: "GPU system processor does not answer",
		120: "GPU system processor error",
		136: "NVLink training failed",
		140: "unrecovered ECC error",
		143: "GPU initialisation failed",
		156: "a resource of the GPU was retired",
		158: "timeout of the GPU",
	}
	// brokenXIDs: a reset will hardly help.
	brokenXIDs = map[uint64]string{
		64: "memory row or page could not be marked for replacement",
	}
	// warningXIDs are warnings whose meaning is worth telling.
	warningXIDs = map[uint64]string{
		54:  "auxiliary power is not connected",
		63:  "memory row or page was marked for replacement",
		92:  "high rate of single-bit ECC errors",
		94:  "contained memory error",
		157: "a faulty resource could not be retired",
	}
	// harmlessXIDs are ranges of numbers for which the catalog asks to restart the
	// program, or nothing. 154 means that the recovery action has changed, which the
	// signal ResetRequired tells better.
	harmlessXIDs = [][2]uint64{
		{8, 8}, {11, 11}, {13, 14}, {25, 25}, {31, 32}, {37, 41}, {43, 45}, {60, 60}, {66, 72}, {75, 77}, {80, 80},
		{82, 86}, {88, 89}, {93, 93}, {96, 108}, {121, 121}, {126, 135}, {137, 137}, {139, 139}, {141, 141}, {154, 154}, {160, 161},
	}
)

// xidRule returns the rule for an error number.
func xidRule(number uint64) Rule {
	for _, r := range harmlessXIDs {
		if r[0] <= number && number <= r[1] {
			return Rule{Harmless, "see NVIDIA's Xid catalog"}
		}
	}
	for class, meanings := range map[Class]map[uint64]string{NeedsReset: resetXIDs, Broken: brokenXIDs, Warning: warningXIDs} {
		if meaning, ok := meanings[number]; ok {
			return Rule{class, meaning}
		}
	}
	return Rule{Warning, "see NVIDIA's Xid catalog"}
}
