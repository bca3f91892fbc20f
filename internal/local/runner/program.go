package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

// hardwareVariable tells a program the folder of hardware descriptions, and with
// that that it serves all nodes that are described there.
const hardwareVariable = "GPUPLAN_HARDWARE_DIR"

// program is the process for a container, with the configuration that the cluster
// holds now.
func (r *Runner) program(ctx context.Context, w *workload, container *corev1.Container) (process.Spec, error) {
	path := filepath.Join(r.Programs, container.Name)
	if _, err := os.Stat(path); err != nil {
		return process.Spec{}, fmt.Errorf("the program of container %s is missing: %w; run make build", container.Name, err)
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return process.Spec{}, err
	}
	mounts, err := r.mount(ctx, w, container)
	if err != nil {
		return process.Spec{}, err
	}
	kubeconfig, err := r.writeCredentials(ctx, w)
	if err != nil {
		return process.Spec{}, err
	}
	env, err := r.environment(ctx, w, container)
	if err != nil {
		return process.Spec{}, err
	}
	spec := process.Spec{
		Name: w.key + "." + container.Name, Path: path, Dir: w.dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "TMPDIR=" + w.dir, "KUBECONFIG=" + kubeconfig},
	}
	switch {
	case w.shared:
		spec.Env = append(spec.Env, hardwareVariable+"="+r.Hardware)
	case w.node != nil:
		spec.Env = append(spec.Env, hardwareVariable+"="+w.node.Hardware())
	}
	values := map[string]string{}
	for _, variable := range env {
		values[variable.Name] = variable.Value
		spec.Env = append(spec.Env, variable.Name+"="+mounts.rewrite(variable.Value))
	}
	arguments := container.Args
	if len(container.Command) > 0 {
		// Its first word is the program.
		arguments = slices.Concat(container.Command[1:], container.Args)
	}
	expand := expansion.MappingFuncFor(values)
	for _, argument := range arguments {
		spec.Args = append(spec.Args, mounts.rewrite(expansion.Expand(argument, expand)))
	}
	return spec, nil
}

// environment resolves the container's variables, each with those before it.
func (r *Runner) environment(ctx context.Context, w *workload, container *corev1.Container) ([]corev1.EnvVar, error) {
	if len(container.EnvFrom) > 0 {
		return nil, fmt.Errorf("container %s: the local platform does not do envFrom", container.Name)
	}
	var env []corev1.EnvVar
	values := map[string]string{}
	expand := expansion.MappingFuncFor(values)
	for _, variable := range container.Env {
		value, present := expansion.Expand(variable.Value, expand), true
		if from := variable.ValueFrom; from != nil {
			if w.shared && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName" {
				continue // the process serves many nodes
			}
			var err error
			if value, present, err = r.valueFrom(ctx, w, from); err != nil {
				return nil, fmt.Errorf("container %s: variable %s: %w", container.Name, variable.Name, err)
			}
		}
		if present {
			values[variable.Name] = value
			env = append(env, corev1.EnvVar{Name: variable.Name, Value: value})
		}
	}
	return env, nil
}

// valueFrom resolves a reference; present is false when an optional one is missing.
func (r *Runner) valueFrom(ctx context.Context, w *workload, from *corev1.EnvVarSource) (value string, present bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = r.field(w, from.FieldRef.FieldPath)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		files, err := r.configMap(ctx, w.first.Namespace, ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return key(files, ref.Key, "ConfigMap "+ref.Name, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		files, err := r.secret(ctx, w.first.Namespace, ref.Name, ref.Optional)
		if err != nil {
			return "", false, err
		}
		return key(files, ref.Key, "Secret "+ref.Name, ref.Optional)
	}
	return "", false, fmt.Errorf("the local platform resolves only references to fields, ConfigMaps and Secrets")
}

func key(files map[string][]byte, name, of string, optional *bool) (string, bool, error) {
	value, ok := files[name]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("%s has no key %q", of, name)
	}
	return string(value), ok, nil
}

// field returns a field of a workload's pod as the downward API does.
func (r *Runner) field(w *workload, path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return w.first.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return w.first.Spec.ServiceAccountName, nil
	case "status.podIP":
		return r.addressOf(w), nil
	case "status.hostIP":
		return "127.0.0.1", nil
	}
	return fieldpath.ExtractFieldPathAsString(w.first, path)
}

// mounts are the places of this machine that stand for paths in the container,
// longest path first.
type mounts []mount

type mount struct{ path, place string }

// rewrite replaces paths below mounts in an argument or a value: on its own, or
// after one of "=", ":" and ",".
func (m mounts) rewrite(text string) string {
	begin := 0
	var out strings.Builder
	for i := 0; i <= len(text); i++ {
		if i < len(text) && !strings.ContainsRune("=:,", rune(text[i])) {
			continue
		}
		out.WriteString(m.place(text[begin:i]))
		if i < len(text) {
			out.WriteByte(text[i])
		}
		begin = i + 1
	}
	return out.String()
}

// place is where a path is on this machine; any other text is returned as it is.
func (m mounts) place(path string) string {
	for _, mount := range m {
		if path == mount.path || strings.HasPrefix(path, mount.path+"/") {
			return mount.place + path[len(mount.path):]
		}
	}
	return path
}

// mount writes the container's volumes to disk.
func (r *Runner) mount(ctx context.Context, w *workload, container *corev1.Container) (mounts, error) {
	var all mounts
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(w.first.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s mounts volume %q, which the pod does not have", container.Name, m.Name)
		}
		volume := w.first.Spec.Volumes[i]
		place := filepath.Join(w.dir, "volumes", volume.Name)
		if w.node != nil && volume.HostPath != nil {
			if of, ok := w.node.HostPath(volume.HostPath.Path); ok {
				place = of
			}
		}
		known, err := r.volume(ctx, w.first.Namespace, volume, place)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		if known {
			all = append(all, mount{path: strings.TrimRight(m.MountPath, "/"), place: filepath.Join(place, m.SubPath)})
		}
	}
	slices.SortFunc(all, func(a, b mount) int { return cmp.Compare(len(b.path), len(a.path)) })
	return all, nil
}

// volume writes a volume to a place on disk; known is false for the volume with the
// service account's token, whose content programs get by KUBECONFIG.
func (r *Runner) volume(ctx context.Context, namespace string, volume corev1.Volume, place string) (known bool, err error) {
	var files map[string][]byte
	var items []corev1.KeyToPath
	switch source := volume.VolumeSource; {
	case source.ConfigMap != nil:
		files, err = r.configMap(ctx, namespace, source.ConfigMap.Name, source.ConfigMap.Optional)
		items = source.ConfigMap.Items
	case source.Secret != nil:
		files, err = r.secret(ctx, namespace, source.Secret.SecretName, source.Secret.Optional)
		items = source.Secret.Items
	case source.EmptyDir != nil, source.HostPath != nil:
		// The paths of a simulated machine are not those of this one.
		return true, os.MkdirAll(place, 0o700)
	case source.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-"):
		return false, nil
	default:
		return false, fmt.Errorf("the local platform has only volumes of the kinds ConfigMap, Secret, emptyDir and hostPath")
	}
	if err != nil {
		return false, err
	}
	if len(items) > 0 {
		picked := map[string][]byte{}
		for _, item := range items {
			picked[item.Path] = files[item.Key]
		}
		files = picked
	}
	for name, content := range files {
		file := filepath.Join(place, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return false, err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return false, err
		}
	}
	return true, os.MkdirAll(place, 0o700)
}

func (r *Runner) configMap(ctx context.Context, namespace, name string, optional *bool) (map[string][]byte, error) {
	object, err := r.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, optional)
	}
	files := map[string][]byte{}
	for key, value := range object.Data {
		files[key] = []byte(value)
	}
	for key, value := range object.BinaryData {
		files[key] = value
	}
	return files, nil
}

func (r *Runner) secret(ctx context.Context, namespace, name string, optional *bool) (map[string][]byte, error) {
	object, err := r.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, optional)
	}
	return object.Data, nil
}
