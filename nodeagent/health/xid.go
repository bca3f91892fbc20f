package health

// severity is what an event says about its card.
type severity uint8

const (
	// application: a program's fault; the card is fine.
	application severity = iota
	// warning: the card dealt with it, but it must not go on happening.
	warning
	// fatal: work on the card fails or gives wrong results.
	fatal
)

// xid describes one error number of the driver.
type xid struct {
	severity severity
	meaning  string
}

// xids are the numbers whose severity is known, after NVIDIA's "XID Errors"
// (docs.nvidia.com/deploy/xid-errors). Numbers that are not here are warnings.
var xids = map[uint64]xid{
	13:  {application, "graphics engine exception"},
	31:  {application, "memory page fault"},
	32:  {application, "invalid or corrupted push buffer stream"},
	37:  {application, "driver firmware error"},
	43:  {application, "processing stopped"},
	45:  {application, "preemptive clean-up after an earlier error"},
	48:  {fatal, "double-bit ECC error"},
	61:  {warning, "internal micro-controller breakpoint"},
	62:  {fatal, "internal micro-controller halt"},
	63:  {warning, "memory row or page was marked for replacement"},
	64:  {fatal, "memory row or page could not be marked for replacement"},
	68:  {application, "video decoder exception"},
	69:  {application, "graphics engine class error"},
	74:  {fatal, "NVLink error"},
	79:  {fatal, "the card has fallen off the bus"},
	92:  {warning, "high rate of single-bit ECC errors"},
	94:  {warning, "contained memory error"},
	95:  {fatal, "uncontained memory error"},
	109: {application, "context switch timeout"},
	119: {fatal, "GPU system processor does not answer"},
	120: {fatal, "GPU system processor error"},
	121: {warning, "chip-to-chip link error"},
	136: {fatal, "link training failed"},
	140: {fatal, "unrecovered ECC error"},
	143: {fatal, "card initialisation failed"},
}

func describeXID(number uint64) xid {
	if x, ok := xids[number]; ok {
		return x
	}
	return xid{warning, "unknown error"}
}
