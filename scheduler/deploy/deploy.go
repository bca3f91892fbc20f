// Package deploy is the scheduler and the queue controller of the chart, with the options
// of a user, and what these programs need on the hub of a fleet.
package deploy

import (
	"cmp"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/deploy/charts"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// Options are what a user decides about the scheduler and the queue controller.
type Options struct {
	// Image is the container image.
	Image string
	// Replicas is the number of schedulers, and of queue controllers, of which one
	// each leads; 0 means [DefaultReplicas].
	Replicas int
	// LogLevel is the verbosity of the log, as in klog: 0 (default) to 10.
	LogLevel int
	// Port is the port on which health and metrics are served, by the scheduler with
	// HTTPS, by the queue controller with HTTP; 0 for none. The scheduler answers
	// questions about gangs and GPUs on the next one.
	Port int
	// UnreachableGrace is how long a node may be unreachable before the members of gangs
	// on it are failed; 0 means the scheduler's own default.
	UnreachableGrace time.Duration
	// ReserveAfter is how long a gang waits before capacity is reserved for it; 0 means
	// [contract.DefaultReserveAfter].
	ReserveAfter time.Duration
	// StaleAfter is how long a gang that has lost members may find no place for others before
	// the whole gang is evicted; 0 means that it never is.
	StaleAfter time.Duration
	// RoutePods sends pods to the scheduler that ask for GPUs, or belong to a gang, and
	// name no scheduler. The policy that does is the last of the objects: it is to be in
	// force only while the scheduler runs.
	RoutePods bool
}

// DefaultReplicas is one that leads and one that stands by.
const DefaultReplicas = 2

// Objects returns the objects of the scheduler and of the queue controller in the order
// in which they can be applied: namespace, CRDs, accounts, rights, configuration,
// Deployments, admission policies. All carry [contract.ManagedByLabel]. The scheduler's
// Deployment is the first.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	if o.Image == "" {
		return nil, errors.New("the scheduler needs a container image")
	}
	if o.Replicas < 0 || o.LogLevel < 0 || o.Port < 0 || o.UnreachableGrace < 0 {
		return nil, errors.New("replicas, log level, port and unreachable grace of the scheduler must not be negative")
	}
	if o.ReserveAfter < 0 || o.StaleAfter < 0 {
		return nil, errors.New("the times after which the scheduler reserves places and evicts stale gangs must not be negative")
	}
	grace := "" // the flag is left out
	if o.UnreachableGrace != 0 {
		grace = o.UnreachableGrace.String()
	}
	return program.Objects(charts.Values{"scheduler": {
		"image": o.Image, "replicas": cmp.Or(o.Replicas, DefaultReplicas), "logLevel": o.LogLevel, "port": o.Port, "routePods": o.RoutePods,
		"unreachableGrace": grace, "reserveAfter": cmp.Or(o.ReserveAfter, contract.DefaultReserveAfter).String(), "staleAfter": o.StaleAfter.String(),
	}})
}

// HubObjects returns what the scheduler of a fleet and the queue of its hub need on the hub, in the order in which it can be applied:
// namespaces, CRDs, accounts, rights, tokens, the admission policy of quota trees. The namespace must exist in which Karmada keeps how it
// reaches member clusters ([contract.ClusterSecretsNamespace]). Ours is kept from these, where it is the scheduler's own.
func HubObjects() ([]*unstructured.Unstructured, error) {
	objects, err := hub.Objects(charts.Values{
		"scheduler": {"enabled": false},
		"hub":       {"enabled": true, "clusterSecretsNamespace": contract.ClusterSecretsNamespace},
	})
	for _, o := range objects {
		if o.GetKind() == "Namespace" && o.GetName() == contract.SystemNamespace {
			labels := o.GetLabels()
			labels[contract.KarmadaSkipsNamespaceLabel] = "true"
			o.SetLabels(labels)
		}
	}
	return objects, err
}

var hub = charts.Program{
	Name: contract.FleetSchedulerName,
	CRDs: []string{
		contract.QuotaTreeResource + "." + contract.QuotaTreeGroup,
		contract.QueueResource + "." + contract.QueueGroup,
		contract.QueueUnitResource + "." + contract.QueueGroup,
	},
	Templates: []string{"queue-rights.yaml", "hub.yaml", "admission-quota.yaml"},
}

var program = charts.Program{
	Name: contract.SchedulerName,
	CRDs: []string{
		contract.QuotaTreeResource + "." + contract.QuotaTreeGroup,
		contract.GangReservationResource + "." + contract.GangReservationGroup,
		contract.PodGroupResource + "." + contract.PodGroupGroup,
		contract.QueueResource + "." + contract.QueueGroup,
		contract.QueueUnitResource + "." + contract.QueueGroup,
	},
	Templates: []string{
		"scheduler.yaml", "queue-rights.yaml", "queue.yaml", "admission-sharing.yaml", "admission-quota.yaml", "admission-allocation.yaml", "explain.yaml", "admission-routing.yaml",
	},
}
