package lifecycle_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/lifecycle"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// An object is someone else's that is another one than the resource's, and does not carry this configuration's stamp.
func TestForeign(t *testing.T) {
	for name, c := range map[string]struct {
		kept    types.UID // "" for none
		live    types.UID
		stamp   string
		foreign bool
	}{
		"the same":                    {"1", "1", "a", false},
		"the same, imported":          {"1", "1", "b", false},
		"another's":                   {"1", "2", "b", true},
		"nobody's":                    {"1", "2", "", true},
		"written again":               {"1", "2", "a", false},
		"of a state without its UID":  {"", "2", "b", false},
		"as imported, without stamps": {"", "2", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var kept lifecycle.Kept
			if c.kept != "" {
				kept.UIDs = lifecycle.UIDsOf(&metav1.ObjectMeta{Name: "x", UID: c.kept})
			}
			r := thing()
			r.Session = session.New(session.Settings{Owner: "a"})
			r.Kept = func(*model) *lifecycle.Kept { return &kept }
			live := &metav1.ObjectMeta{Name: "x", UID: c.live}
			if c.stamp != "" {
				live.Labels = map[string]string{contract.OwnerLabel: c.stamp}
			}
			assert.Equal(t, c.foreign, r.Foreign(new(model), live))
		})
	}
}

// The stamp with which something was imported is kept until it has that of this configuration. What has been in the
// state before, which has moved, is left as it is.
func TestNoteStamp(t *testing.T) {
	for name, c := range map[string]struct {
		owner, kept, stamp string
		imported           bool
		keeps              string
	}{
		"its own":                {"b", "", "b", false, ""},
		"before its state moved": {"b", "", "a", false, ""},
		"imported":               {"b", "", "a", true, "a"},
		"imported, its own":      {"b", "", "b", true, ""},
		"imported, no stamp":     {"b", "", "", true, ""},
		"imported before":        {"b", "a", "a", false, "a"},
		"written since":          {"b", "a", "b", false, ""},
		"unknown until apply":    {"", "a", "a", false, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			kept := lifecycle.Kept{Stamp: c.kept}
			r := thing()
			r.Session = session.New(session.Settings{Owner: c.owner})
			r.Kept = func(*model) *lifecycle.Kept { return &kept }
			r.NoteStamp(new(model), c.stamp, c.imported)
			assert.Equal(t, c.keeps, kept.Stamp)
		})
	}
}

// What another configuration has written its stamp on is no longer this one's, wherever its state has moved meanwhile.
func TestTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		owner, noted, live string
		taken              bool
	}{
		"its own":                  {"a", "a", "a", false},
		"another's":                {"a", "a", "b", true},
		"its state has moved":      {"z", "a", "a", false},
		"moved, and written since": {"z", "a", "z", false},
		"moved, and another's":     {"z", "a", "b", true},
		"without its stamp":        {"a", "a", "", false},
		"never seen":               {"a", "", "b", false},
		"unknown until apply":      {"", "a", "b", false},
	} {
		t.Run(name, func(t *testing.T) {
			kept := lifecycle.Kept{}
			r := thing()
			r.Session = session.New(session.Settings{Owner: cmp.Or(c.noted, c.owner)})
			r.Kept = func(*model) *lifecycle.Kept { return &kept }
			r.NoteOwner(new(model), c.noted)
			r.Session = session.New(session.Settings{Owner: c.owner})
			assert.Equal(t, c.taken, r.TakenOver(new(model), c.live))
			if !c.taken && c.live != "" {
				r.NoteOwner(new(model), c.live)
				assert.False(t, r.TakenOver(new(model), c.live))
			}
		})
	}
}
