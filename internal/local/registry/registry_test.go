package registry

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const program = "the program"

func newRegistry(t *testing.T) *Registry {
	t.Helper()
	file := filepath.Join(t.TempDir(), Program)
	require.NoError(t, os.WriteFile(file, []byte(program), 0o755))
	r, err := New(file)
	require.NoError(t, err)
	return r
}

// get returns what the registry answers.
func get(r *Registry, method, path string) (int, http.Header, []byte) {
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer.Code, answer.Header(), answer.Body.Bytes()
}

// pulled is an image as a runtime has it.
type pulled struct {
	entrypoint []string
	files      map[string]string
}

// pull takes an image as a runtime does, and holds every blob against its digest.
func pull(t *testing.T, r *Registry, repository, tag string) pulled {
	t.Helper()
	code, header, manifest := get(r, http.MethodGet, "/v2/"+repository+"/manifests/"+tag)
	require.Equal(t, http.StatusOK, code)
	assert.Equal(t, digest(manifest), header.Get("Docker-Content-Digest"))
	code, _, again := get(r, http.MethodGet, "/v2/"+repository+"/manifests/"+digest(manifest))
	require.Equal(t, http.StatusOK, code, "what a tag was resolved to can be pulled")
	assert.Equal(t, manifest, again)
	var m struct {
		MediaType string
		Config    descriptor
		Layers    []descriptor
	}
	require.NoError(t, json.Unmarshal(manifest, &m))
	assert.Equal(t, header.Get("Content-Type"), m.MediaType)
	blob := func(d descriptor) []byte {
		code, _, body := get(r, http.MethodGet, "/v2/"+repository+"/blobs/"+d.Digest)
		require.Equal(t, http.StatusOK, code)
		assert.Equal(t, d.Digest, digest(body))
		assert.Len(t, body, d.Size)
		return body
	}
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(blob(m.Config), &config))
	require.Len(t, m.Layers, 1)
	assert.Equal(t, []string{m.Layers[0].Digest}, config.Rootfs.DiffIDs)
	p := pulled{entrypoint: config.Config.Entrypoint, files: map[string]string{}}
	archive := tar.NewReader(bytes.NewReader(blob(m.Layers[0])))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return p
		}
		require.NoError(t, err)
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		p.files[header.Name] = header.Linkname + string(content)
	}
}

func TestEveryImageIsThere(t *testing.T) {
	r := newRegistry(t)
	for _, repository := range []string{"train", "kubernetes-image-hub/pytorch-benchmark", "blobs/manifests/x"} {
		image := pull(t, r, repository, "1.3-gpu-py3")
		assert.Equal(t, []string{"/bin/" + Program}, image.entrypoint, repository)
		assert.Equal(t, program, image.files["bin/"+Program])
		assert.Equal(t, Program, image.files["bin/python"], "a link")
	}
	for _, repository := range []string{"mpioperator/kubectl-delivery", "kubeflow/training-v1/kubectl-delivery"} {
		assert.Equal(t, []string{"/bin/devices"}, pull(t, r, repository, "latest").entrypoint, "an init container has to end")
	}
	assert.Equal(t, []string{"/bin/pause"}, pull(t, r, pauseRepository, "1").entrypoint)
}

func TestRequests(t *testing.T) {
	r := newRegistry(t)
	other := digest([]byte("another image"))
	for path, want := range map[string]int{
		"/v2/":                         http.StatusOK,
		"/":                            http.StatusNotFound,
		"/v2/train/tags/list":          http.StatusNotFound,
		"/v2/train/manifests/latest":   http.StatusOK,
		"/v2/train/manifests/" + other: http.StatusNotFound,
		"/v2/train/blobs/" + other:     http.StatusNotFound,
	} {
		code, _, body := get(r, http.MethodHead, path)
		assert.Equal(t, want, code, path)
		if path == "/v2/train/manifests/"+other {
			assert.Contains(t, string(body), "import the image")
		}
	}
	code, _, _ := get(r, http.MethodPut, "/v2/train/manifests/latest")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	_, err := New(filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "run make build")
}
