package trainingjob

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	k8stypes "k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// unknownLogDir stands for a log directory that is unknown until apply: it may be on one of the job's volumes.
const unknownLogDir = "known-after-apply://"

type tensorBoardModel struct {
	LogDir      types.String `tfsdk:"log_dir"`
	Image       types.String `tfsdk:"image"`
	ServiceType types.String `tfsdk:"service_type"`
}

var tensorBoardType = typeOf(schemas(tensorBoardAttributes))

var tensorBoardAttributes = []attribute[tensorBoardModel, job.TensorBoard]{
	{
		name:     "log_dir",
		schema:   schema.StringAttribute{MarkdownDescription: "Where the job writes its events: a path on one of `volumes`, which TensorBoard mounts for reading, or a URL that TensorBoard reads, such as `hdfs://`.", Required: true},
		property: says(textOr(unknownLogDir), func(m *tensorBoardModel) *types.String { return &m.LogDir }, func(t *job.TensorBoard) *string { return &t.LogDir }),
	},
	{
		name:     "image",
		schema:   optionalText("Image with the program `tensorboard`. Default: arena's."),
		property: text(func(m *tensorBoardModel) *types.String { return &m.Image }, func(t *job.TensorBoard) *string { return &t.Image }),
	},
	{
		name: "service_type",
		schema: schema.StringAttribute{
			MarkdownDescription: "Type of the Service: `NodePort` (default, as arena has it, whose `arena get` shows the address), `LoadBalancer`, or `ClusterIP`, with which `kubectl port-forward` leads to it. TensorBoard asks nobody who he is: whoever reaches the Service sees the logs.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.OneOf(string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeClusterIP))},
		},
		property: text(func(m *tensorBoardModel) *types.String { return &m.ServiceType }, func(t *job.TensorBoard) *corev1.ServiceType { return &t.ServiceType }),
	},
}

// tensorBoardAttribute is the attribute of a job.
var tensorBoardAttribute = jobAttribute{
	name: "tensorboard",
	schema: schema.SingleNestedAttribute{
		MarkdownDescription: "A TensorBoard for what the job logs, as `arena submit --tensorboard` makes it: a Deployment and a Service `NAME-tensorboard` on port 6006, without a GPU, placed by the cluster's own scheduler. " +
			"They belong to the job, stay when it has finished, and go with it. Can be added, changed and taken away while the job runs. Unlike arena's it does not read logs from the disk of a node.",
		Optional: true, CustomType: tensorBoardType, Attributes: schemas(tensorBoardAttributes),
	},
	property: single(tensorBoardType, tensorBoardAttributes, func(m *model) *types.Object { return &m.TensorBoard }, func(s *job.Spec) **job.TensorBoard { return &s.TensorBoard }),
	change:   inPlace,
}

// tensorBoardKinds are the kinds of [job.Spec.TensorBoardObjects].
var tensorBoardKinds = []k8sschema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service")}

// showTensorBoard makes the job's TensorBoard what the job says, if it has one.
func showTensorBoard(ctx context.Context, client *kube.Client, spec job.Spec, uid k8stypes.UID) error {
	if spec.TensorBoard == nil {
		return nil
	}
	objects, err := spec.TensorBoardObjects(uid)
	if err != nil {
		return err
	}
	for _, obj := range objects {
		if err := applyOwned(ctx, client, spec, obj); err != nil {
			return err
		}
	}
	return nil
}

// hideTensorBoard deletes the job's TensorBoard.
func hideTensorBoard(ctx context.Context, client *kube.Client, spec job.Spec) error {
	for _, kind := range tensorBoardKinds {
		if err := deleteOwned(ctx, client, spec, kind, spec.TensorBoardName()); err != nil {
			return err
		}
	}
	return nil
}

// switchTensorBoard changes the TensorBoard of a job that exists. That of a job which arena is to know has its labels.
func switchTensorBoard(ctx context.Context, client *kube.Client, before, spec job.Spec, uid k8stypes.UID) error {
	switch {
	case before.TensorBoard != nil && spec.TensorBoard == nil:
		return hideTensorBoard(ctx, client, spec)
	case before.Arena == spec.Arena && apiequality.Semantic.DeepEqual(before.TensorBoard, spec.TensorBoard):
		return nil
	}
	return showTensorBoard(ctx, client, spec, uid)
}

// seeTensorBoard forgets a TensorBoard of which something has gone, so that a plan makes it again.
func (m *model) seeTensorBoard(ctx context.Context, client *kube.Client, spec job.Spec) error {
	if m.TensorBoard.IsNull() {
		return nil
	}
	for _, kind := range tensorBoardKinds {
		switch live, err := client.Get(ctx, kind, spec.Namespace, spec.TensorBoardName()); {
		case kube.IsNotFound(err) || err == nil && !spec.Owns(live.GetOwnerReferences()):
			m.TensorBoard = types.ObjectNull(tensorBoardType.AttrTypes)
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}
