package contract

import (
	"encoding/json"
	"fmt"
)

// readRecord reads the versioned record of an annotation, which what describes, into a pointer; found is where that has its
// version. ok is false when there is no such annotation.
func readRecord(annotations map[string]string, annotation, what string, into any, found *int, version int) (ok bool, err error) {
	text, ok := annotations[annotation]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		reason := fmt.Sprintf("%.200s", err) // what the decoder quotes may be as long as the annotation
		return true, fmt.Errorf("annotation %s is not %s: %s", annotation, what, reason)
	}
	if *found != version {
		return true, fmt.Errorf("annotation %s has version %d; this program reads version %d", annotation, *found, version)
	}
	return true, nil
}
