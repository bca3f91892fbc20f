// Package preflight asks the cluster at plan whether it would let an apply do what it is
// going to do: the rights of the kubeconfig's user, the kinds and fields that are served,
// the objects that a job names, and admission.
//
// What is there and contradicts is an error. What is absent is a warning, because another
// resource of the same configuration may create it first. What cannot be asked, for want
// of a right, is passed over.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Finding is something that would stop an apply.
type Finding struct {
	// Warning means that it may be there by then.
	Warning bool
	// Attribute is the attribute of the resource that it is about, "" for the whole resource.
	Attribute string
	// Summary is a headline, Detail says what and what to do, in full sentences.
	Summary, Detail string
}

// Objects asks for the rights to install, change and remove objects, and to follow them.
func Objects(ctx context.Context, client *kube.Client, objs []*unstructured.Unstructured) []Finding {
	var needed []kube.Right
	for _, obj := range objs {
		rights, err := client.Rights(obj, "get", "list", "watch", "create", "patch", "delete")
		if err != nil {
			continue // its kind comes with the same apply
		}
		needed = append(needed, rights...)
	}
	if found := lacking(ctx, client, needed); len(found) > 0 {
		return found
	}
	for _, obj := range objs {
		if obj.GetKind() != "ClusterRole" {
			continue
		}
		// Nobody can grant what he does not have himself.
		if _, err := client.TryCreate(ctx, obj); apierrors.IsForbidden(err) {
			return []Finding{{Summary: "The kubeconfig's user lacks rights", Detail: fmt.Sprintf(
				"The cluster would not create the ClusterRole %s: %s. Only a user who has these rights can grant them, such as a cluster-admin.", obj.GetName(), err)}}
		}
	}
	return nil
}

// Write asks the server whether it would let an object of ours be written, created or changed where it exists; admission may
// refuse. title is what users call it, attribute what of the resource it says.
func Write(ctx context.Context, client *kube.Client, obj *unstructured.Unstructured, exists bool, title, attribute string) []Finding {
	deed, err := "create", error(nil)
	if exists {
		deed, err = "change", client.TryTakeOver(ctx, obj)
	} else {
		_, err = client.TryCreate(ctx, obj)
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return nil // done, or who needs the cluster says that it does not answer
	}
	what, text := fmt.Sprintf("%s %s %s/%s", deed, obj.GetKind(), obj.GetNamespace(), obj.GetName()), strings.TrimSuffix(answer.Status().Message, ".")
	switch {
	case kube.IsRefusal(err):
		return []Finding{{Attribute: attribute, Summary: "The cluster refuses the " + title, Detail: fmt.Sprintf("The cluster would not %s: %s.", what, text)}}
	case apierrors.IsInternalError(err):
		return []Finding{{Warning: true, Attribute: attribute, Summary: notAsked, Detail: fmt.Sprintf("Whether the cluster would %s, the plan could not ask: %s.", what, text)}}
	}
	return nil
}

// NodeChange asks for the right to change nodes, of which the cloud's service may do
// without.
func NodeChange(ctx context.Context, client *kube.Client) []Finding {
	missing := missing(ctx, client, []kube.Right{{Verb: "patch", Resource: "nodes"}})
	if missing == "" {
		return nil
	}
	return []Finding{{Warning: true, Summary: "The kubeconfig's user lacks rights", Detail: fmt.Sprintf(
		"Labels and taints of nodes that the cloud's service does not bring up to date are changed by the provider itself, and the user of the kubeconfig may not: %s. "+
			"Give it a role with that right, or use another kubeconfig; an apply that needs it fails half-way.", missing)}}
}

// NodeLabels asks for the rights to label nodes, and to follow them.
func NodeLabels(ctx context.Context, client *kube.Client) []Finding {
	var needed []kube.Right
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		needed = append(needed, kube.Right{Verb: verb, Resource: "nodes"})
	}
	return lacking(ctx, client, needed)
}

// Evictions asks for the rights to cordon nodes, and to evict their pods.
func Evictions(ctx context.Context, client *kube.Client) []Finding {
	return lacking(ctx, client, []kube.Right{
		{Verb: "patch", Resource: "nodes"}, {Verb: "get", Resource: "pods"}, {Verb: "list", Resource: "pods"}, {Verb: "create", Resource: "pods/eviction"},
	})
}

// lacking reports the rights that the user does not have.
func lacking(ctx context.Context, client *kube.Client, needed []kube.Right) []Finding {
	missing := missing(ctx, client, needed)
	if missing == "" {
		return nil
	}
	return []Finding{{Summary: "The kubeconfig's user lacks rights", Detail: fmt.Sprintf(
		"An apply would fail half-way, because the user of the kubeconfig may not: %s. Give it a role with these rights, or use another kubeconfig. "+
			"`kubectl auth can-i --list` shows what it may.", missing)}}
}

// missing lists the rights that the user does not have, "" when there are none.
func missing(ctx context.Context, client *kube.Client, needed []kube.Right) string {
	var order []string
	verbs := map[string][]string{}
	for _, right := range needed {
		has, err := client.Has(ctx, right)
		if err != nil {
			return "" // who needs the cluster says that it does not answer
		}
		where := right.Resource
		if right.Group != "" {
			where += "." + right.Group
		}
		if right.Namespace != "" {
			where += " in namespace " + right.Namespace
		}
		if has || slices.Contains(verbs[where], right.Verb) {
			continue
		}
		if verbs[where] == nil {
			order = append(order, where)
		}
		verbs[where] = append(verbs[where], right.Verb)
	}
	parts := make([]string, len(order))
	for i, where := range order {
		parts[i] = strings.Join(verbs[where], ", ") + " " + where
	}
	return strings.Join(parts, "; ")
}
