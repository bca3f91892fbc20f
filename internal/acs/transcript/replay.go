package transcript

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
)

// Service is who answers in a replay.
type Service interface {
	// Ask sends a request and returns status and body of the answer.
	Ask(method, target, body string) (status int, answer []byte)
	// Wait lets time pass, so that tasks go on.
	Wait()
}

// patience is how often a replay waits for a state that the transcript has.
const patience = 50

// Replay sends the requests of a transcript to a service and returns how its answers differ:
// in their status, in codes and states, and in their shape, which is the keys of objects and
// the kinds of values. A difference by which an answer has more is one, too.
func Replay(t Transcript, service Service) []string {
	names := names{}
	var differences []string
	for i, e := range t.Exchanges {
		body := ""
		if e.Request != nil {
			raw, err := json.Marshal(e.Request)
			if err != nil {
				return append(differences, err.Error())
			}
			body = names.actual(string(raw))
		}
		var found []string
		for range patience {
			status, raw := service.Ask(e.Method, names.actual(e.Target), body)
			answer := decode(raw)
			found = compare("", e.Answer, answer, names)
			if status != e.Status {
				found = []string{fmt.Sprintf("status %d instead of %d: %s", status, e.Status, raw)}
			}
			if len(found) == 0 || e.Method != http.MethodGet {
				break
			}
			service.Wait()
		}
		for _, difference := range found {
			differences = append(differences, fmt.Sprintf("%d. %s %s %s: %s", i+1, e.Operation, e.Method, e.Target, difference))
		}
	}
	return differences
}

// names are the names that the service gave, by placeholder.
type names map[string]string

var placeholder = regexp.MustCompile(`\b(np|T|i|vpc|vsw|sg|asg|eni|rg|c|text)-[0-9]+\b`)

func (n names) actual(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if name, ok := n[p]; ok {
			return name
		}
		return p
	})
}

// told is where values must be equal.
var told = map[string]bool{".state": true, ".status.state": true, ".code": true, ".Code": true}

// compare returns how a value differs from the recorded one, and learns names.
func compare(path string, recorded, actual any, names names) (differences []string) {
	if recorded == nil || actual == nil {
		if path == "" && (recorded == nil) != (actual == nil) {
			return []string{"one of the answers has no body"}
		}
		return nil
	}
	switch recorded := recorded.(type) {
	case map[string]any:
		object, ok := actual.(map[string]any)
		if !ok {
			break
		}
		for _, key := range sortedKeys(recorded) {
			if _, ok := object[key]; !ok {
				differences = append(differences, path+"."+key+" is missing")
				continue
			}
			differences = append(differences, compare(path+"."+key, recorded[key], object[key], names)...)
		}
		for _, key := range sortedKeys(object) {
			if _, ok := recorded[key]; !ok {
				differences = append(differences, path+"."+key+" is not in the transcript")
			}
		}
		return differences
	case []any:
		list, ok := actual.([]any)
		if !ok {
			break
		}
		for i := range min(len(recorded), len(list)) {
			differences = append(differences, compare(fmt.Sprintf("%s[%d]", path, i), recorded[i], list[i], names)...)
		}
		return differences
	case string:
		text, ok := actual.(string)
		if !ok {
			break
		}
		switch {
		case told[path] && text != recorded:
			return []string{fmt.Sprintf("%s is %q instead of %q", path, text, recorded)}
		case placeholder.FindString(recorded) == recorded && names[recorded] == "":
			names[recorded] = text
		}
		return nil
	case bool:
		if _, ok := actual.(bool); ok {
			return nil
		}
	default:
		switch actual.(type) {
		case json.Number, float64:
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is %T instead of %T", path, actual, recorded)}
}
