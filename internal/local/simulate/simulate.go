// Package simulate plays the life of GPU nodes and their pods that exist only in
// the API: it makes nodes Ready, pods Running, and ends pods as their annotations
// ask. The engine is kwok's; the stages are ours.
package simulate

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

const (
	// NodeAnnotation with NodeAnnotationValue marks the nodes that are simulated,
	// and whose pods are.
	NodeAnnotation      = "kwok.x-k8s.io/node"
	NodeAnnotationValue = "fake"

	podCIDR     = "10.244.0.0/16"
	parallelism = 16
)

//go:embed stages.yaml
var stagesYAML string

// IsSimulated tells whether the object, a node, is simulated.
func IsSimulated(node metav1.Object) bool {
	return node.GetAnnotations()[NodeAnnotation] == NodeAnnotationValue
}

// Start plays nodes and pods until ctx ends. The nodes' [Kubelet] is at a port of this
// machine. The log goes to w.
func Start(ctx context.Context, config *rest.Config, kubeletPort int, w io.Writer) error {
	played, err := stages(kubeletPort)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	controller, err := controllers.NewController(controllers.Config{
		Clock:                             clock.RealClock{},
		TypedClient:                       kubelets{typed},
		DynamicClient:                     untyped,
		RESTClient:                        typed.Discovery().RESTClient(),
		ManageNodesWithAnnotationSelector: NodeAnnotation + "=" + NodeAnnotationValue,
		CIDR:                              podCIDR,
		NodeIP:                            "127.0.0.1",
		LocalStages:                       played,
		NodePlayStageParallelism:          parallelism,
		PodPlayStageParallelism:           parallelism,
		PodsOnNodeSyncParallelism:         parallelism,
		// Without node leases a node is ours from the start; a lease left by an
		// earlier run would lock its node until it expires.
		NodeLeaseDurationSeconds: 0,
		ID:                       "gpuplan-local",
		FuncMap: gotpl.FuncMap{
			"KubernetesVersion": func() string { return version.Get().GitVersion },
		},
	})
	if err != nil {
		return err
	}
	return controller.Start(log.NewContext(ctx, log.NewLogger(w, log.LevelWarn)))
}

func stages(kubeletPort int) (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	text := strings.NewReplacer(
		"@part-of@", contract.PartOfLabel, "@gpuplan@", contract.PartOfValue,
		"@kubelet-address@", KubeletAddress, "@kubelet-port@", strconv.Itoa(kubeletPort),
		"@run-for@", contract.RunForAnnotation, "@fail-after@", contract.FailAfterAnnotation,
	).Replace(stagesYAML)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(text), 4096)
	played := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	for {
		var stage v1alpha1.Stage
		if err := decoder.Decode(&stage); errors.Is(err, io.EOF) {
			return played, nil
		} else if err != nil {
			return nil, fmt.Errorf("stages.yaml: %w", err)
		}
		internal, err := internalversion.ConvertToInternalStage(&stage)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", stage.Name, err)
		}
		played[internal.Spec.ResourceRef] = append(played[internal.Spec.ResourceRef], internal)
	}
}
