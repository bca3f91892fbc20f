package datadir

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holdVariable makes the test binary hold a directory until its standard input ends.
const holdVariable = "TEST_HOLD_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(holdVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := Dir(dir).Lock(); err != nil {
		os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString("held")
	os.Stdin.Read(make([]byte, 1))
}

func created(t *testing.T) Dir {
	t.Helper()
	dir, err := Open(filepath.Join(t.TempDir(), "data"))
	require.NoError(t, err)
	require.NoError(t, dir.Create())
	return dir
}

// hold starts a process that holds the directory, and returns what it says.
func hold(t *testing.T, dir Dir) (*exec.Cmd, string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holdVariable+"="+string(dir))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	said := make([]byte, 100)
	n, _ := stdout.Read(said)
	return cmd, string(said[:n])
}

func TestOneProcessHoldsTheDirectory(t *testing.T) {
	dir := created(t)
	holder, err := dir.Holder()
	require.NoError(t, err)
	assert.Zero(t, holder)

	first, said := hold(t, dir)
	require.Equal(t, "held", said)
	holder, err = dir.Holder()
	require.NoError(t, err)
	assert.Equal(t, first.Process.Pid, holder)
	assert.ErrorIs(t, dir.Lock(), ErrHeld)
	_, said = hold(t, dir)
	assert.Equal(t, ErrHeld.Error(), said)

	// Killed in any way, it holds no more.
	require.NoError(t, first.Process.Kill())
	first.Wait()
	holder, err = dir.Holder()
	require.NoError(t, err)
	assert.Zero(t, holder)
}

func TestState(t *testing.T) {
	dir := created(t)
	_, err := dir.ReadState()
	require.ErrorIs(t, err, fs.ErrNotExist)
	want := State{StartedAt: time.Now().UTC(), ReadySeconds: 3, Clusters: []Cluster{{Name: MainCluster, URL: "https://127.0.0.1:1"}}}
	require.NoError(t, dir.WriteState(State{Version: "old"}))
	require.NoError(t, dir.WriteState(want))
	got, err := dir.ReadState()
	require.NoError(t, err)
	assert.Equal(t, want, got)
	entries, err := os.ReadDir(string(dir))
	require.NoError(t, err)
	for _, entry := range entries {
		assert.NotContains(t, entry.Name(), ".state", "no temporary file is left")
	}
}

func TestPurge(t *testing.T) {
	dir := created(t)
	require.Error(t, dir.Purge(), "a directory that the platform never held is not its own")
	assert.DirExists(t, string(dir))
	_, said := hold(t, dir)
	require.Equal(t, "held", said)
	require.NoError(t, dir.Purge())
	assert.NoDirExists(t, string(dir))
}

func TestClustersByName(t *testing.T) {
	dir := Dir("/data")
	assert.Equal(t, "/data/kubeconfig", dir.Kubeconfig(MainCluster))
	assert.Equal(t, "/data/clusters/member1/kubeconfig", dir.Kubeconfig("member1"))
}

func TestMembers(t *testing.T) {
	dir := Dir(t.TempDir())
	assert.Empty(t, dir.Members())
	for _, number := range []int{1, 2} {
		member := dir.Member(MemberCluster(number))
		require.NoError(t, member.Create())
		assert.Equal(t, dir.Kubeconfig(MemberCluster(number)), member.Kubeconfig(MainCluster), "both name one file")
		require.NoError(t, os.WriteFile(filepath.Join(string(member), "lock"), nil, 0o600))
	}
	assert.Equal(t, []string{"member-1", "member-2"}, dir.Members())
}
