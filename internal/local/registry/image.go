package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
)

// Media types of the OCI image specification.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// programs are the names that the program of the image has in its folder /bin: its own, and
// those with which the manifests of examples and documents begin.
var programs = []string{"pause", "devices", "sh", "bash", "python", "python3", "torchrun", "mpirun", "sleep"}

// descriptor names a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

// image is an image in the form in which a registry serves it.
type image struct {
	manifest []byte
	// blobs are its layer and its configuration, by digest.
	blobs map[string][]byte
}

// newImage makes an image with one layer, whose containers start the program called entrypoint.
func newImage(layer []byte, entrypoint string) (image, error) {
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{path.Join("/bin", entrypoint)}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return image{}, err
	}
	i := image{blobs: map[string][]byte{digest(layer): layer, digest(config): config}}
	i.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor{configType, digest(config), len(config)},
		"layers": []descriptor{{layerType, digest(layer), len(layer)}},
	})
	return i, err
}

// newLayer makes the layer with the program in file, under all its names.
func newLayer(file string) ([]byte, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the program for containers of real nodes is missing: %w; run make build", err)
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	headers := []tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: path.Join("bin", Program), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
	}
	for _, name := range programs {
		headers = append(headers, tar.Header{Name: path.Join("bin", name), Typeflag: tar.TypeSymlink, Linkname: Program, Mode: 0o777})
	}
	for _, header := range headers {
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := archive.Write(program); err != nil {
				return nil, err
			}
		}
	}
	return layer.Bytes(), archive.Close()
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
