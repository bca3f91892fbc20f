// Package registry serves the images of real nodes: to every name that is asked for it
// answers with an image of [Program], so that pods run whatever image they name
// without a network. A request by digest is for one image alone, and is refused.
package registry

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// Program is the file name of the program in the image.
const Program = "gpuplan-container"

// PauseImage is the image of the container that keeps the namespaces of a pod.
const PauseImage = "local.gpuplan.dev/pause:1"

const (
	// pauseRepository is the repository of PauseImage.
	pauseRepository = "pause"
	// deliveryRepository ends the names of the image by which training operators have the launcher of an MPIJob wait for its workers, in an init
	// container.
	deliveryRepository = "kubectl-delivery"
)

// Registry is the part of the registry protocol (OCI distribution specification) by which
// images are pulled.
type Registry struct {
	// substitute stays until it is told to end, prints ends at once.
	substitute, prints, pause image
}

// New returns the registry whose image holds the statically linked program in file.
func New(file string) (*Registry, error) {
	layer, err := newLayer(file)
	if err != nil {
		return nil, err
	}
	r := &Registry{}
	if r.substitute, err = newImage(layer, Program); err != nil {
		return nil, err
	}
	if r.prints, err = newImage(layer, "devices"); err != nil {
		return nil, err
	}
	r.pause, err = newImage(layer, "pause")
	return r, err
}

// ServeHTTP answers GET and HEAD of /v2/, of manifests by tag and of blobs.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		http.Error(w, "images can only be pulled", http.StatusMethodNotAllowed)
		return
	}
	asked, ok := strings.CutPrefix(request.URL.Path, "/v2/")
	if ok && asked == "" {
		return // it is a registry
	}
	// The name of a repository may have slashes.
	rest, reference := path.Split(asked)
	repository, kind := path.Split(strings.TrimSuffix(rest, "/"))
	switch kind {
	case "blobs":
		r.serveBlob(w, reference)
	case "manifests":
		r.serveManifest(w, strings.TrimSuffix(repository, "/"), reference)
	default:
		http.NotFound(w, request)
	}
}

func (r *Registry) serveManifest(w http.ResponseWriter, repository, reference string) {
	manifest := r.substitute.manifest
	switch {
	case repository == pauseRepository:
		manifest = r.pause.manifest
	case path.Base(repository) == deliveryRepository:
		manifest = r.prints.manifest
	}
	if strings.Contains(reference, ":") && reference != digest(manifest) {
		http.Error(w, fmt.Sprintf("the local platform has a substitute for images by tag, not for %s: import the image", reference), http.StatusNotFound)
		return
	}
	write(w, manifestType, manifest)
}

func (r *Registry) serveBlob(w http.ResponseWriter, reference string) {
	for _, i := range []image{r.substitute, r.prints, r.pause} {
		if blob, ok := i.blobs[reference]; ok {
			write(w, "application/octet-stream", blob)
			return
		}
	}
	http.Error(w, "no such blob: "+reference, http.StatusNotFound)
}

func write(w http.ResponseWriter, mediaType string, body []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Docker-Content-Digest", digest(body))
	_, _ = w.Write(body) // who asked may have gone; of HEAD the server sends no body
}
