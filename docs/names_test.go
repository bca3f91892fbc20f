package docs_test

import (
	"path"
	"regexp"
	"strings"
)

// programs are ours, by name, with the folders of their flags and commands.
var programs = map[string][]string{
	"gpuplan-local":      {"internal/local/"},
	"gpuplan-scheduler":  {"scheduler/"},
	"gpuplan-node-agent": {"nodeagent/"},
	"kubectl-gpuplan":    {"scheduler/explain/kubectl-gpuplan/"},
}

var (
	flagWord   = regexp.MustCompile(`^--?[a-z][a-z0-9.-]*[a-z0-9](=.*)?$`)
	pathWord   = regexp.MustCompile(`^\.?[\w.-]+(/[\w.-]+)*/?$`)
	fileWord   = regexp.MustCompile(`\.(go|md|yaml|json|tf|svg|mod|Dockerfile)$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*\.[A-Z]\w*$`)
	testName   = regexp.MustCompile(`^Test\w+(/[\w-]+)?$`)
	setting    = regexp.MustCompile(`^([\w./-]+)(?: = |: )`)
	name       = regexp.MustCompile(`^[A-Za-z_][\w./-]*$`)
)

// span checks what stands in backticks.
func (r *repository) span(text string) []string {
	if m := setting.FindStringSubmatch(text); m != nil {
		return r.word(m[1])
	}
	if !strings.Contains(text, " ") {
		return r.word(text)
	}
	return r.command(text)
}

// word checks one word: a flag, a path, an identifier, or a name.
func (r *repository) word(text string) []string {
	switch {
	case flagWord.MatchString(text):
		if !r.flag(text, "") {
			return []string{"no flag " + text}
		}
	case testName.MatchString(text):
		if !r.test(text, "") {
			return []string{"no test " + text}
		}
	case identifier.MatchString(text):
		if !r.identifiers[text] {
			return []string{"no identifier " + text}
		}
	case pathWord.MatchString(text) && r.isPath(text):
		if !r.found(text) {
			return []string{"no path " + text}
		}
	case name.MatchString(text):
		if !r.mentions(text) {
			return []string{text + " is nowhere in the code"}
		}
	}
	return nil
}

// isPath tells whether a word is meant as a path of the repository.
func (r *repository) isPath(text string) bool {
	first, _, nested := strings.Cut(text, "/")
	return strings.HasSuffix(text, "/") || fileWord.MatchString(text) ||
		nested && (r.paths[first+"/"] || r.paths["internal/"+first+"/"])
}

// found looks a path up, as it stands and below internal/; a file's name alone, and what is
// built into bin/, will do.
func (r *repository) found(text string) bool {
	if strings.HasPrefix(text, "bin/") {
		return text == "bin/" || r.targets[""][text] || r.targets[""][text+"/"]
	}
	for _, base := range []string{"", "internal/"} {
		if r.paths[base+text] || r.paths[base+text+"/"] {
			return true
		}
	}
	return fileWord.MatchString(text) && r.bases[path.Base(text)] && !strings.Contains(text, "/") || r.mentions(text) && !strings.Contains(text, "/")
}

// command checks a line of a shell as far as it is about the repository.
func (r *repository) command(line string) (faults []string) {
	line, _, _ = strings.Cut(line, " #")
	for part := range strings.SplitSeq(strings.NewReplacer("&&", ";", "kubectl gpuplan", "kubectl-gpuplan").Replace(line), ";") {
		words := strings.Fields(part)
		if len(words) < 2 {
			continue
		}
		switch program := path.Base(words[0]); {
		case program == "make":
			faults = append(faults, r.makes(words[1:])...)
		case program == "go" && (words[1] == "run" || words[1] == "test"):
			faults = append(faults, r.goes(words[1], words[2:])...)
		case programs[program] != nil:
			faults = append(faults, r.runs(program, words[1:])...)
		}
	}
	return faults
}

// makes checks the targets of make.
func (r *repository) makes(words []string) (faults []string) {
	dir := ""
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-C" && i+1 < len(words):
			i++
			dir = words[i]
		case strings.Contains(word, "=") || strings.HasPrefix(word, "-"):
		case !r.targets[dir][word]:
			fault := "no make target " + word
			if dir != "" {
				fault += " in " + dir
			}
			faults = append(faults, fault)
		}
	}
	return faults
}

// goes checks `go run` and `go test`: packages, their flags, and the names of tests.
func (r *repository) goes(verb string, words []string) (faults []string) {
	var pkg string
	for _, word := range words {
		if strings.HasPrefix(word, "./") && pkg == "" {
			pkg = strings.TrimSuffix(word, "/...")
			if !r.paths[strings.TrimPrefix(pkg, "./")+"/"] {
				faults = append(faults, "no path "+pkg)
			}
		}
	}
	own := verb == "run"
	for i, word := range words {
		switch {
		case pkg == "" || !strings.HasPrefix(word, "-"):
		case word == "-args":
			own = true
		case own:
			if !r.flag(word, strings.TrimPrefix(pkg, "./")+"/") {
				faults = append(faults, pkg+" has no flag "+word)
			}
		case (word == "-run" || word == "-bench") && i+1 < len(words):
			for test := range strings.SplitSeq(strings.Trim(words[i+1], "'^$"), "|") {
				if test != "" && test != "." && !r.test(test, strings.TrimPrefix(pkg, "./")+"/") {
					faults = append(faults, "no test or benchmark "+test+" in "+pkg)
				}
			}
		}
	}
	return faults
}

var commandWord = regexp.MustCompile(`^[a-z]+$`)

// runs checks the commands and flags that a program of ours is given: "up | down" are two.
func (r *repository) runs(program string, words []string) (faults []string) {
	command := true
	for _, word := range words {
		word = strings.Trim(word, "[]")
		switch {
		case flagWord.MatchString(word):
			if !r.programFlag(program, word) {
				faults = append(faults, program+" has no flag "+word)
			}
		case command && commandWord.MatchString(word) && !r.programCommand(program, word):
			faults = append(faults, program+" has no command "+word)
		}
		command = word == "|"
	}
	return faults
}
