package health

// severity is what a signal says about its card.
type severity uint8

const (
	// harmless: a program's fault, or of no consequence; the card is fine.
	harmless severity = iota
	// warning: the card dealt with it, but it must not go on happening.
	warning
	// fatal: work on the card fails or gives wrong results.
	fatal
)

// The driver's error numbers after NVIDIA's Xid catalog
// (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Numbers in none
// of these are warnings.
var (
	// fatalXIDs: the catalog asks for a reset of the card or a reboot of the node.
	fatalXIDs = map[uint64]string{
		46:  "the card stopped processing",
		48:  "double-bit ECC error",
		62:  "internal micro-controller halt",
		64:  "memory row or page could not be marked for replacement",
		74:  "NVLink error",
		79:  "the card has fallen off the bus",
		95:  "uncontained memory error",
		109: "context switch timeout",
		110: "security fault",
		119: "GPU system processor does not answer",
		120: "GPU system processor error",
		136: "NVLink training failed",
		140: "unrecovered ECC error",
		143: "card initialisation failed",
		156: "a resource of the card was retired",
		158: "timeout of the card",
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
	// program, or nothing. 154 tells that the recovery action has changed, which the
	// signal ResetRequired tells better.
	harmlessXIDs = [][2]uint64{
		{8, 8}, {11, 11}, {13, 14}, {25, 25}, {31, 32}, {37, 41}, {43, 45}, {60, 60}, {66, 72}, {75, 77}, {80, 80},
		{82, 86}, {88, 89}, {93, 93}, {96, 108}, {121, 121}, {126, 135}, {137, 137}, {139, 139}, {141, 141}, {154, 154}, {160, 161},
	}
)

// judgeXID returns the severity of an error number and its meaning.
func judgeXID(number uint64) (severity, string) {
	if meaning, ok := fatalXIDs[number]; ok {
		return fatal, meaning
	}
	for _, r := range harmlessXIDs {
		if r[0] <= number && number <= r[1] {
			return harmless, ""
		}
	}
	if meaning, ok := warningXIDs[number]; ok {
		return warning, meaning
	}
	return warning, "see NVIDIA's Xid catalog"
}
