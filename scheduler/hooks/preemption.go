package hooks

import (
	"context"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	defaults "k8s.io/kubernetes/pkg/scheduler/apis/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// Preemption makes kube-scheduler's DefaultPreemption with its default arguments.
func Preemption(ctx context.Context, handle fwk.Handle) (*defaultpreemption.DefaultPreemption, error) {
	var versioned configv1.DefaultPreemptionArgs
	defaults.SetDefaults_DefaultPreemptionArgs(&versioned)
	args := &config.DefaultPreemptionArgs{
		MinCandidateNodesPercentage: *versioned.MinCandidateNodesPercentage,
		MinCandidateNodesAbsolute:   *versioned.MinCandidateNodesAbsolute,
	}
	return defaultpreemption.New(ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
}

// Choose has another plugin, which embeds kube-scheduler's, choose victims in its place and in its own name.
func Choose(stock *defaultpreemption.DefaultPreemption, name string, chooser preemption.Interface) {
	stock.Evaluator.PluginName, stock.Evaluator.Interface = name, chooser
}
