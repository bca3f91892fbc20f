package trainingjob

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/preflight"
)

// claimFindings warns of claims that wait for their first pod, and for which there is no volume on a node that
// the job may use, nor will anybody make one. The planner knows where the volumes of bound claims are.
func (r *trainingJob) claimFindings(ctx context.Context, spec job.Spec, on offer) (findings []preflight.Finding) {
	snapshot, err := r.Session.Snapshot(ctx)
	if err != nil || snapshot.Claims == nil || snapshot.Volumes == nil {
		return nil // nobody knows
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Volumes)) {
		at := slices.IndexFunc(snapshot.Claims, func(c corev1.PersistentVolumeClaim) bool {
			return c.Namespace == spec.Namespace && c.Name == spec.Volumes[name].Claim
		})
		if at < 0 || snapshot.Claims[at].Spec.VolumeName != "" {
			continue
		}
		claim := &snapshot.Claims[at]
		className := volume.GetPersistentVolumeClaimClass(claim)
		if className == "" {
			continue
		}
		class, err := r.Session.StorageClass(ctx, className)
		if err != nil || class.Provisioner != volume.NotSupportedProvisioner || class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
			continue
		}
		if !slices.ContainsFunc(given(snapshot, on), func(node *corev1.Node) bool { return canHave(node, claim, snapshot.Volumes) }) {
			findings = append(findings, preflight.Finding{Warning: true, Attribute: "volumes", Summary: "Volume claim has no volume", Detail: fmt.Sprintf(
				"Volume %q of job %s is the claim %s/%s, which is bound when its first pod comes. Nobody makes volumes of its StorageClass %s, and of those that are there none fits the claim on a node that the job may use: "+
					"the job waits until one does. Create such a PersistentVolume, or use another claim.",
				name, spec.ID(), claim.Namespace, claim.Name, className)})
		}
	}
	return findings
}

// given lists the nodes that a job may use, one that is to come, of which nothing is known, as nil.
func given(snapshot *cluster.Snapshot, on offer) (nodes []*corev1.Node) {
	if on.anywhere() {
		return []*corev1.Node{nil}
	}
	for _, pool := range on.pools {
		for _, n := range pool.Nodes {
			var node *corev1.Node
			if at := slices.IndexFunc(snapshot.Nodes, func(live corev1.Node) bool { return live.Name == n.Name }); at >= 0 {
				node = &snapshot.Nodes[at]
			}
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// canHave reports whether one of the volumes fits a claim for a pod on a node, as the scheduler's VolumeBinding
// decides; of a node of which nothing is known, whether one may.
func canHave(node *corev1.Node, claim *corev1.PersistentVolumeClaim, volumes []corev1.PersistentVolume) bool {
	all := make([]*corev1.PersistentVolume, len(volumes))
	for i := range volumes {
		all[i] = &volumes[i]
	}
	found, err := volume.FindMatchingVolume(claim, all, node, nil, false, true)
	return err != nil || found != nil
}
