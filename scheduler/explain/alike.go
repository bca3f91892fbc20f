package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteAll writes answers as write does; of those that say the same of different gangs or pods
// the first, with the names of the others.
func WriteAll(w io.Writer, answers []Answer, write func(Answer, io.Writer) error) error {
	var groups [][]Answer
	known := map[string]int{}
	for _, a := range answers {
		words, err := a.words(write)
		if err != nil {
			return err
		}
		i, ok := known[words]
		if !ok {
			i, known[words] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], a)
	}
	for i, group := range groups {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := write(group[0], w); err != nil {
			return err
		}
		if len(group) == 1 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\nThe same of %d more: %s.\n", len(group)-1, names(group[1:])); err != nil {
			return err
		}
	}
	return nil
}

// words are what an answer says, without whom it is about and since when.
func (a Answer) words(write func(Answer, io.Writer) error) (string, error) {
	var text strings.Builder
	a.Since = time.Time{}
	if err := write(a, &text); err != nil {
		return "", err
	}
	_, name, _ := strings.Cut(a.Gang, "/")
	var words []string
	for _, word := range strings.Fields(text.String()) {
		bare := strings.TrimRight(word, ".,;:")
		if bare == a.Gang || bare == name {
			word = "*" + word[len(bare):]
		}
		words = append(words, word)
	}
	return strings.Join(words, " "), nil
}

func names(answers []Answer) string {
	var all []string
	for _, a := range answers {
		all = append(all, a.Gang)
	}
	return strings.Join(all, ", ")
}
