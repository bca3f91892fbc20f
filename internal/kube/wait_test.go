package kube_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// untilValue waits for a config map's value and reports each value it sees.
func untilValue(want string) func(*unstructured.Unstructured) (bool, string, error) {
	return func(obj *unstructured.Unstructured) (bool, string, error) {
		value, _, _ := unstructured.NestedString(obj.Object, "data", "key")
		return value == want, value, nil
	}
}

func TestWaitForFollowsChanges(t *testing.T) {
	server, client, ctx := start(t)
	var told []string
	next := map[string]func(){
		"does not exist yet": func() { server.Put(configMap("a", "pending")) },
		"pending": func() {
			server.ExpireWatches()
			server.Put(configMap("a", "done"))
		},
	}
	obj, err := client.WaitFor(ctx, configMaps, "default", "a", untilValue("done"), func(status string) {
		told = append(told, status)
		if step := next[status]; step != nil {
			go step()
		}
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"does not exist yet", "pending", "done"}, told)
	assert.Equal(t, "a", obj.GetName())
}

func TestWaitForEndings(t *testing.T) {
	t.Run("the check fails", func(t *testing.T) {
		server, client, ctx := start(t)
		server.Put(configMap("a", "x"))
		broken := errors.New("it can never work")
		_, err := client.WaitFor(ctx, configMaps, "default", "a", func(*unstructured.Unstructured) (bool, string, error) {
			return false, "x", broken
		}, nil)
		assert.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, "wait for ConfigMap default/a")
	})
	t.Run("the object vanishes", func(t *testing.T) {
		server, client, ctx := start(t)
		server.Put(configMap("a", "x"))
		_, err := client.WaitFor(ctx, configMaps, "default", "a", untilValue("never"), func(status string) {
			if status == "x" {
				go server.Remove(configMaps, "default", "a")
			}
		})
		assert.True(t, kube.IsNotFound(err), "%v", err)
	})
	t.Run("it is interrupted", func(t *testing.T) {
		server, client, ctx := start(t)
		server.Put(configMap("a", "still waiting"))
		ctx, cancel := context.WithCancel(ctx)
		_, err := client.WaitFor(ctx, configMaps, "default", "a", untilValue("never"), func(string) { cancel() })
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorContains(t, err, "interrupted; last status: still waiting")
	})
	t.Run("time runs out", func(t *testing.T) {
		server, client, ctx := start(t)
		server.Put(configMap("a", "still waiting"))
		var obj *unstructured.Unstructured
		err := errors.New("not tried")
		for patience := 100 * time.Millisecond; patience < time.Minute && !strings.Contains(err.Error(), "last status"); patience *= 2 {
			short, cancel := context.WithTimeout(ctx, patience)
			obj, err = client.WaitFor(short, configMaps, "default", "a", untilValue("never"), nil)
			cancel()
			require.Error(t, err)
		}
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "timed out; last status: still waiting")
		require.NotNil(t, obj)
		assert.Equal(t, "a", obj.GetName(), "the object as it was seen last")
	})
}

func TestDelete(t *testing.T) {
	server, client, ctx := start(t)
	assert.NoError(t, client.Delete(ctx, configMaps, "default", "absent"))
	assert.NoError(t, client.Delete(ctx, widgets, "default", "of an unknown kind"))

	server.Put(configMap("a", "x"))
	require.NoError(t, client.Delete(ctx, configMaps, "default", "a"))
	_, err := client.Get(ctx, configMaps, "default", "a")
	assert.True(t, kube.IsNotFound(err), "%v", err)
}

func TestDeleteWaitsForFinalizers(t *testing.T) {
	server, client, ctx := start(t)
	held := configMap("a", "x")
	held.SetFinalizers([]string{"example.com/hold"})
	server.Put(held)

	// Nobody knows how long a busy machine takes to look at the object once.
	err := errors.New("not tried")
	for patience := 100 * time.Millisecond; patience < time.Minute && !strings.Contains(err.Error(), "waiting for"); patience *= 2 {
		short, cancel := context.WithTimeout(ctx, patience)
		err = client.Delete(short, configMaps, "default", "a")
		cancel()
		require.Error(t, err)
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorContains(t, err, "waiting for example.com/hold")

	done := make(chan error)
	go func() { done <- client.Delete(ctx, configMaps, "default", "a") }()
	server.Remove(configMaps, "default", "a")
	assert.NoError(t, <-done)
}

// None of many waits until another is gone.
func TestManyAreDeletedTogether(t *testing.T) {
	server, client, ctx := start(t)
	names := []string{"a", "b", "c"}
	for _, name := range names {
		held := configMap(name, "x")
		held.SetLabels(map[string]string{"job": "j"})
		held.SetFinalizers([]string{"example.com/hold"})
		server.Put(held)
	}
	done := make(chan error)
	go func() { done <- client.DeleteLabelled(ctx, configMaps, "default", "job=j") }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		for _, name := range names {
			held, err := client.Get(ctx, configMaps, "default", name)
			require.NoError(c, err)
			assert.NotNil(c, held.GetDeletionTimestamp(), name)
		}
	}, time.Minute, 10*time.Millisecond)
	for _, name := range names {
		server.Remove(configMaps, "default", name)
	}
	assert.NoError(t, <-done)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func kubeconfig(host string) string {
	return `apiVersion: v1
kind: Config
current-context: main
clusters:
- {name: main, cluster: {server: "` + host + `"}}
- {name: other, cluster: {server: "https://other.example:6443"}}
users:
- {name: user, user: {}}
contexts:
- {name: main, context: {cluster: main, user: user}}
- {name: other, context: {cluster: other, user: user}}
`
}
