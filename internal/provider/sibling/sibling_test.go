package sibling

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// meeting is two processes of one command.
func meeting(t *testing.T) (one, two *Group) {
	folder := t.TempDir()
	of := func(self string, others ...string) *Group {
		return &Group{folder: folder, parent: 1, processes: func() (string, []string, error) { return self, others, nil }}
	}
	return of("2-100", "3-100"), of("3-100", "2-100")
}

// Of two processes of one command the one that comes second meets the first, whichever that is.
func TestMeet(t *testing.T) {
	const x, y = "https://x:6443", "https://y:6443"
	for name, test := range map[string]struct {
		one, two Scope
		shared   bool
	}{
		"the same server":               {Scope{"a", x, "", ""}, Scope{"a", x, "", ""}, true},
		"the same cluster":              {Scope{"a", x, "c1", ""}, Scope{"a", x, "c1", ""}, true},
		"one does not say the cluster":  {Scope{"a", x, "c1", ""}, Scope{"a", x, "", ""}, true},
		"the same cluster, no server":   {Scope{"a", "", "c1", ""}, Scope{"a", "", "c1", ""}, true},
		"one does not say the server":   {Scope{"a", x, "c1", ""}, Scope{"a", "", "c1", ""}, true},
		"neither says the same":         {Scope{"a", x, "", ""}, Scope{"a", "", "c1", ""}, false},
		"another server":                {Scope{"a", x, "", ""}, Scope{"a", y, "", ""}, false},
		"another server of one cluster": {Scope{"a", x, "c1", ""}, Scope{"a", y, "c1", ""}, true},
		"another server, one ID":        {Scope{"a", x, "c1", ""}, Scope{"a", y, "", ""}, false},
		"another ID, the same access":   {Scope{"a", x, "c1", "u"}, Scope{"a", x, "c2", "u"}, true},
		"another ID, another access":    {Scope{"a", x, "c1", "u"}, Scope{"a", x, "c2", "v"}, false},
		"one ID, another access":        {Scope{"a", x, "c1", "u"}, Scope{"a", x, "", "v"}, true},
		"another cluster":               {Scope{"a", x, "c1", ""}, Scope{"a", y, "c2", ""}, false},
		"another cluster, no server":    {Scope{"a", "", "c1", ""}, Scope{"a", "", "c2", ""}, false},
		"another owner":                 {Scope{"a", x, "c1", ""}, Scope{"b", x, "c1", ""}, false},
		"nothing is known":              {Scope{"a", "", "", ""}, Scope{"a", "", "", ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, scopes := range [][2]Scope{{test.one, test.two}, {test.two, test.one}} {
				first, second := meeting(t)
				require.NoError(t, first.write("2-100", scopes[0]))
				shared, err := second.Meet(t.Context(), scopes[1])
				require.NoError(t, err)
				assert.Equal(t, test.shared, shared)
			}
		})
	}
}

// One that was started and is not configured yet is waited for; one that ends before is not met.
func TestMeetOneThatIsBeingConfigured(t *testing.T) {
	one, two := meeting(t)
	scope := Scope{"a", "https://x:6443", "", ""}
	time.AfterFunc(3*again, func() { assert.NoError(t, two.write("3-100", scope)) })
	shared, err := one.Meet(t.Context(), scope)
	require.NoError(t, err)
	assert.True(t, shared)

	one, _ = meeting(t)
	looks := 0
	one.processes = func() (string, []string, error) {
		if looks++; looks < 4 {
			return "2-100", []string{"3-100"}, nil
		}
		return "2-100", nil, nil
	}
	shared, err = one.Meet(t.Context(), scope)
	require.NoError(t, err)
	assert.False(t, shared)
	one.Leave()
	left, err := os.ReadDir(one.folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestMeetNobody(t *testing.T) {
	shared, err := (*Group)(nil).Meet(t.Context(), Scope{"a", "https://x:6443", "", ""})
	require.NoError(t, err)
	assert.False(t, shared)
	(*Group)(nil).Leave()
	nobody := func() (string, []string, error) { return "2-100", nil, nil }
	_, err = (&Group{folder: "/nowhere", processes: nobody}).Meet(t.Context(), Scope{})
	require.ErrorContains(t, err, "tell other provider configurations of this one: open /nowhere")
}

// What a killed process has left is not what another one of its ID says, as in containers, where IDs
// come again.
func TestLeftovers(t *testing.T) {
	scope := Scope{"a", "https://x:6443", "", ""}
	killed, later := meeting(t)
	require.NoError(t, killed.write("2-50", scope))
	later.processes = func() (string, []string, error) { return "3-100", nil, nil }
	shared, err := later.Meet(t.Context(), scope)
	require.NoError(t, err)
	assert.False(t, shared)
	later.processes = func() (string, []string, error) { return "3-100", []string{"2-100"}, nil }
	shared, err = later.Meet(t.Context(), scope)
	require.NoError(t, err)
	assert.False(t, shared, "it has not said what it is for")
}

// The children of a process are found in /proc and by ps alike.
func TestSiblings(t *testing.T) {
	sleep := exec.Command("sleep", "60")
	require.NoError(t, sleep.Start())
	t.Cleanup(func() {
		assert.NoError(t, sleep.Process.Kill())
		_ = sleep.Wait() // it was killed
	})
	find := func(children []process, pid int) process {
		i := slices.IndexFunc(children, func(p process) bool { return p.pid == pid })
		require.GreaterOrEqual(t, i, 0)
		return children[i]
	}
	for name, children := range map[string]func(int) ([]process, error){"proc": childrenInProc, "ps": childrenByPS} {
		t.Run(name, func(t *testing.T) {
			found, err := children(os.Getpid())
			if err != nil {
				t.Skip(err)
			}
			slept := find(found, sleep.Process.Pid)
			assert.Contains(t, slept.program, "sleep")
			assert.NotEmpty(t, slept.since)
			again, err := children(os.Getpid())
			require.NoError(t, err)
			assert.Equal(t, slept, find(again, slept.pid), "a process keeps its name")
			all, err := children(os.Getppid())
			require.NoError(t, err)
			find(all, os.Getpid())
		})
	}
	own, others, err := siblings(os.Getppid(), os.Getpid())
	require.NoError(t, err)
	assert.Contains(t, own, fmt.Sprint(os.Getpid(), "-"))
	assert.Empty(t, others)
	_, others, err = siblings(os.Getpid(), sleep.Process.Pid)
	require.NoError(t, err)
	assert.Empty(t, others, "it runs another program")
}

// A process that starts when another one of its command has ended reads what that has left, and takes it away. One that runs
// beside it does not, nor one of another command.
func TestNotes(t *testing.T) {
	folder := t.TempDir()
	of := func(command process, self string, others ...string) *Group {
		return &Group{
			folder:    folder,
			processes: func() (string, []string, error) { return self, others, nil },
			command:   func() (process, error) { return command, nil },
		}
	}
	apply := process{pid: 1, since: "100"}
	first := of(apply, "2-101", "3-101")
	first.Note([]string{"a", "b"})
	first.Note([]string{"c"})
	assert.Empty(t, first.Noted(), "its own")
	assert.Empty(t, of(apply, "3-101", "2-101").Noted(), "both run")
	assert.Empty(t, of(process{pid: 1, since: "200"}, "2-201").Noted(), "another command of that ID")
	first.Leave()
	second := of(apply, "4-150")
	assert.Equal(t, []string{"a", "b", "c"}, second.Noted())
	second.Leave()
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Empty(t, (*Group)(nil).Noted())
}
