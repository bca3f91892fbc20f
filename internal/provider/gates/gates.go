// Package gates holds what a cluster runs against the lowest versions with which features work.
package gates

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/catalog"
)

// Kubernetes is the component whose version is that of the cluster.
const Kubernetes = "kubernetes"

// Unmet returns the catalogue's gates of a feature for which a component is too old. runs are the
// versions of components as they spell them, [Kubernetes] and names of add-ons; of one that is not
// there, or whose version says nothing, nobody can tell.
func Unmet(feature string, runs map[string]string) []catalog.Gate {
	return slices.DeleteFunc(catalog.Gates(feature), func(g catalog.Gate) bool {
		have, minimum := parse(runs[g.Component]), parse(g.Minimum)
		return have == nil || minimum == nil || !have.LessThan(minimum) || g.Kubernetes != "" && g.Kubernetes != minor(runs[Kubernetes])
	})
}

// parse reads the number by which versions of a component are compared: the vendor's own where there
// is one, "6.8.0" of "v1.30.3-aliyun-6.8.0.9ef9f4e8" and "2.0" of "v1.24.3-ack-2.0"; nil for none. An
// add-on's version that begins as that of Kubernetes and has none of its own says nothing.
func parse(text string) *version.Version {
	kubernetes, own, ok := strings.Cut(text, "-aliyun-")
	if !ok {
		kubernetes, own, ok = strings.Cut(text, "-ack-")
	}
	if !ok && strings.HasPrefix(kubernetes, "v") {
		return nil
	}
	if !ok {
		own = text
	}
	if v, err := version.ParseGeneric(own); err == nil {
		return v
	}
	return nil
}

// minor is the minor version of a cluster, "1.28" of "1.28.3-aliyun.1".
func minor(cluster string) string {
	parts := strings.SplitN(cluster, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}
