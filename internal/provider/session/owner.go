package session

import "fmt"

// Mine reports whether an object with that stamp was created by this configuration.
func (s *Session) Mine(stamp string) bool { return stamp != "" && stamp == s.Owner }

// Whose says to whom an object with that stamp belongs: "it belongs to …".
func (s *Session) Whose(stamp string) string {
	switch {
	case stamp == "":
		return "it carries no stamp of this provider"
	case s.Mine(stamp):
		return "it belongs to this configuration"
	}
	return fmt.Sprintf("it belongs to the configuration with the owner %q (this one is %q)", stamp, s.Owner)
}

// Taken is the error of a resource whose object another one of the same apply has.
func Taken(object string) error {
	return fmt.Errorf("two resources of this configuration are the same %s: remove one of them, or give it another name", object)
}
