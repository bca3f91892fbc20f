package job

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

func logging(s Spec) Spec {
	s.Volumes = map[string]Volume{"logs": {Claim: "logs", MountPath: "/logs"}}
	s.TensorBoard = &TensorBoard{LogDir: "/logs/run"}
	return s
}

// A TensorBoard is read back from the job as it is written, whatever kind that has, and its pods know nothing of it.
func TestTensorBoardIsReadBack(t *testing.T) {
	for name, s := range map[string]Spec{"plain": plain(), "alpha": alphaShared(), "batch": batch(), "jobset": jobSetPlain(), "shared": shared()} {
		t.Run(name, func(t *testing.T) {
			for _, board := range []TensorBoard{{LogDir: "/logs/run"}, {LogDir: "oss://logs", Image: "tb:1", ServiceType: corev1.ServiceTypeClusterIP}} {
				s := logging(s)
				s.TensorBoard = &board
				require.Empty(t, s.Check())
				obj, err := s.Render()
				require.NoError(t, err)
				read, err := Parse(obj)
				require.NoError(t, err)
				assert.Equal(t, board, *read.Brief().TensorBoard)
				assert.Equal(t, s.Complete().Annotations, read.Annotations)
				pods, err := Pods(obj)
				require.NoError(t, err)
				assert.NotContains(t, pods[0].Annotations, contract.TensorBoardAnnotation)
			}
		})
	}
	obj, err := plain().Render()
	require.NoError(t, err)
	obj.SetAnnotations(map[string]string{contract.TensorBoardAnnotation: "{"})
	read, err := Parse(obj)
	require.NoError(t, err)
	assert.Nil(t, read.TensorBoard, "what someone has written that says nothing")
}

// The Deployment and the Service are those of arena's charts, of a job that arena knows.
func TestTensorBoardObjects(t *testing.T) {
	s := logging(shared())
	s.Arena = true
	objects, err := s.TensorBoardObjects("uid-1")
	require.NoError(t, err)
	golden(t, "shared.tensorboard.yaml", []any{objects[0].Object, objects[1].Object})

	s.Arena = false
	unknown, err := s.TensorBoardObjects("uid-1")
	require.NoError(t, err)
	assert.NotContains(t, unknown[0].GetLabels(), contract.ArenaAppLabel)
	for _, path := range [][]string{{"spec", "selector"}} {
		before, _, _ := unstructured.NestedMap(objects[0].Object, path...)
		after, _, _ := unstructured.NestedMap(unknown[0].Object, path...)
		assert.Equal(t, before, after, "nobody can change what a Deployment selects")
	}
	assert.True(t, s.Owns(unknown[1].GetOwnerReferences()))

	s.TensorBoard = &TensorBoard{LogDir: "oss://logs"}
	remote, err := s.TensorBoardObjects("uid-1")
	require.NoError(t, err)
	volumes, _, _ := unstructured.NestedSlice(remote[0].Object, "spec", "template", "spec", "volumes")
	assert.Empty(t, volumes)
}

// Of volumes within each other it has the innermost.
func TestVolumeOfTheLogDirectory(t *testing.T) {
	for dir, want := range map[string]string{"/a/b/c": "inner", "/a/b": "inner", "/a/bc": "outer", "/a": "outer", "/a/": "outer", "/": "", "/ab": ""} {
		s := plain()
		s.Volumes = map[string]Volume{"inner": {MountPath: "/a/b/"}, "outer": {MountPath: "/a"}}
		s.TensorBoard = &TensorBoard{LogDir: dir}
		name, _ := s.logVolume()
		assert.Equal(t, want, name, dir)
	}
}

func TestCheckTensorBoard(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"no path":       {func(s *Spec) { s.TensorBoard.LogDir = "run" }, `log_dir: "run" is neither a path in the containers, which starts with a slash, nor a URL`},
		"a way up":      {func(s *Spec) { s.TensorBoard.LogDir = "/logs/../x" }, `log_dir: "/logs/../x" is neither a path in the containers, which starts with a slash, nor a URL`},
		"on no volume":  {func(s *Spec) { s.TensorBoard.LogDir = "/training_logs" }, "log_dir: /training_logs is on none of the job's volumes, and TensorBoard runs in a pod of its own, which would not see it: add a volume that both mount, or use a URL"},
		"image":         {func(s *Spec) { s.TensorBoard.Image = " a" }, `image: " a" has spaces around it, or characters that no image has`},
		"too long name": {func(s *Spec) { s.Name = strings.Repeat("a", 52) }, `"` + strings.Repeat("a", 52) + `-tensorboard" cannot be the name of its Service: must be no more than 63 characters`},
	} {
		t.Run(name, func(t *testing.T) {
			s := logging(plain())
			test.change(&s)
			problems := s.Check()
			require.Len(t, problems, 1)
			assert.Equal(t, Problem{"tensorboard", "", test.want}, problems[0])
		})
	}
}
