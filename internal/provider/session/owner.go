package session

import (
	"fmt"
	"strings"
)

// Mine reports whether an object with that stamp was created by this configuration.
func (s *Session) Mine(stamp string) bool { return stamp != "" && stamp == s.Owner }

// Theirs reports whether a stamp is another one than that of this configuration, as far as that is known.
func (s *Session) Theirs(stamp string) bool {
	return stamp != "" && s.Owner != "" && stamp != s.Owner
}

// Whose says as a clause who manages an object with that stamp.
func (s *Session) Whose(stamp string) string {
	switch {
	case stamp == "":
		return "it carries no stamp of this provider"
	case s.Mine(stamp):
		return "it belongs to this configuration"
	}
	return fmt.Sprintf("another Terraform configuration manages it, with the owner %q (this one is %q)", stamp, s.Owner)
}

// Foreign is an object of the cluster, or of the cloud, that is in the way of a resource.
type Foreign struct {
	Stamp string
	// Resource and ID are what to import it with, "" where no resource is like it.
	Resource, ID string
	// Renamable means that the resource could have another name, Deletable that the object
	// may be deleted where nobody manages it.
	Renamable, Deletable bool
}

// Advice says who manages an object that is in the way, and what to do: an import of what
// another configuration manages would set two against each other. It ends without a full stop.
func (s *Session) Advice(f Foreign) string {
	if f.Stamp != "" && !s.Mine(f.Stamp) {
		return s.Whose(f.Stamp) + ". " + f.leaveIt()
	}
	var ways []string
	if f.Renamable {
		ways = append(ways, "choose another name")
	}
	if f.Deletable {
		ways = append(ways, "delete it first")
	}
	if f.Resource != "" {
		ways = append(ways, "take it over with "+f.command())
	}
	text := strings.Join(ways, ", or ")
	return s.Whose(f.Stamp) + ". " + strings.ToUpper(text[:1]) + text[1:]
}

// leaveIt is the advice about what another configuration manages.
func (f Foreign) leaveIt() string {
	text := "Change it there"
	if f.Renamable {
		text += ", or choose another name here"
	}
	taken := "to delete it"
	if f.Resource != "" {
		taken = f.command()
	}
	return fmt.Sprintf("%s; %s is right only once that configuration has given it up (`terraform state rm` there, or a removed block with destroy = false)", text, taken)
}

func (f Foreign) command() string {
	return fmt.Sprintf("`terraform import %s.NAME %s`", f.Resource, f.ID)
}

// Taken is the error of a resource whose object another one of the same apply has.
func Taken(object string) error {
	return fmt.Errorf("two resources of this configuration are the same %s: remove one of them, or give it another name", object)
}
