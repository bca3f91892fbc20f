// Package kubetest is a small Kubernetes API server for unit tests: discovery,
// get, list, watch, server-side apply with field ownership, delete with
// preconditions and finalizers, and evictions, over HTTP and in memory. It validates no schema
// and runs no controllers; tests that need those run against a real control plane.
package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Server is the API server. Its methods may be called while clients use it.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	kinds    []kind
	objects  map[key]*object
	log      []event
	revision int
	// expired is the revision up to which a watch can no longer start.
	expired int
	changed chan struct{}
	writes  int
	// lists and gets count the calls by the plural of the kind.
	lists, gets map[string]int
	discoveries int
	// minor is the minor version of Kubernetes.
	minor string
}

type kind struct {
	gvk        schema.GroupVersionKind
	plural     string
	namespaced bool
}

type key struct{ plural, group, namespace, name string }

type object struct {
	data map[string]any
	// owners maps the path of a leaf field to its field manager.
	owners map[string]string
}

type event struct {
	revision int
	kind     string
	key      key
	data     map[string]any
}

// builtin are the kinds that every server has.
var builtin = []kind{
	{schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", false},
	{schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "nodes", false},
	{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "secrets", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "services", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "Event"}, "events", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}, "persistentvolumes", false},
	{schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, "persistentvolumeclaims", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, "serviceaccounts", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "secrets", true},
	{schema.GroupVersionKind{Version: "v1", Kind: "LimitRange"}, "limitranges", true},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "deployments", true},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "daemonsets", true},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, "statefulsets", true},
	{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, "jobs", true},
	{schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, "leases", true},
	{schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, "poddisruptionbudgets", true},
	{schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}, "priorityclasses", false},
	{schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}, "storageclasses", false},
	{schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "CSINode"}, "csinodes", false},
	{schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"}, "deviceclasses", false},
	{schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"}, "resourceclaims", true},
	{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, "clusterroles", false},
	{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}, "clusterrolebindings", false},
	{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, "roles", true},
	{schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, "rolebindings", true},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}, "validatingadmissionpolicies", false},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}, "validatingadmissionpolicybindings", false},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}, "mutatingadmissionpolicies", false},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"}, "mutatingadmissionpolicybindings", false},
	{schema.GroupVersionKind{Group: crdGroup, Version: "v1", Kind: "CustomResourceDefinition"}, crdPlural, false},
}

const (
	crdGroup  = "apiextensions.k8s.io"
	crdPlural = "customresourcedefinitions"
)

// Start starts a server that stops with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{minor: "36", kinds: append([]kind(nil), builtin...), objects: map[key]*object{}, lists: map[string]int{}, gets: map[string]int{}, changed: make(chan struct{})}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Config returns the connection to the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.http.URL} }

// ServeAs has the server serve kinds in another version, as an older one does; not at all
// for version "".
func (s *Server) ServeAs(version string, kinds ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.kinds {
		if slices.Contains(kinds, s.kinds[i].gvk.Kind) {
			s.kinds[i].gvk.Version = version
		}
	}
	s.kinds = slices.DeleteFunc(s.kinds, func(k kind) bool { return k.gvk.Version == "" })
}

// Put creates or replaces an object as the field manager "test", without conflicts.
func (s *Server) Put(obj *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.kindOf(obj.GroupVersionKind())
	if !ok {
		panic(fmt.Sprintf("kubetest: kind %s is not served", obj.GroupVersionKind()))
	}
	at := key{k.plural, k.gvk.Group, obj.GetNamespace(), obj.GetName()}
	data := obj.DeepCopy().Object
	owners := map[string]string{}
	for path := range leaves(data) {
		owners[path] = "test"
	}
	if old := s.objects[at]; old != nil {
		keepIdentity(data, old.data)
	}
	s.store(at, &object{data: data, owners: owners})
}

// Remove deletes an object at once, whatever its finalizers.
func (s *Server) Remove(gvk schema.GroupVersionKind, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _ := s.kindOf(gvk)
	s.remove(key{k.plural, gvk.Group, namespace, name})
}

// ExpireWatches ends all watches and lets none start at a revision before now,
// as an API server does after its history was compacted.
func (s *Server) ExpireWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	s.expired = s.revision
	s.log = nil
	s.broadcast()
}

// Writes counts the changes that clients have made so far.
func (s *Server) Writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Lists returns how often clients have listed each kind so far, by its plural.
func (s *Server) Lists() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.lists)
}

// Gets returns how often clients have asked for objects of each kind by name so far, by its plural.
func (s *Server) Gets() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.gets)
}

// Objects returns all objects by kind, namespace and name, without what a server writes of its own: identity, times and
// revisions, and the status.
func (s *Server) Objects() map[string]map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]map[string]any, len(s.objects))
	for at, o := range s.objects {
		obj := (&unstructured.Unstructured{Object: o.data}).DeepCopy()
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
			unstructured.RemoveNestedField(obj.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(obj.Object, "status")
		all[fmt.Sprintf("%s.%s %s/%s", at.plural, at.group, at.namespace, at.name)] = obj.Object
	}
	return all
}

// BeOld has the server say that it is of an older minor version of Kubernetes.
func (s *Server) BeOld(minor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.minor = minor
}

// Discoveries returns how often clients have asked so far which groups there are.
func (s *Server) Discoveries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discoveries
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) == 1 && parts[0] == "api":
		reply(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	case len(parts) == 1 && parts[0] == "version":
		s.mu.Lock()
		info := version.Info{Major: "1", Minor: s.minor, GitVersion: "v1." + s.minor + ".0"}
		s.mu.Unlock()
		reply(w, http.StatusOK, info)
		return
	case len(parts) == 1 && parts[0] == "apis":
		s.mu.Lock()
		s.discoveries++
		s.mu.Unlock()
		reply(w, http.StatusOK, s.groups())
		return
	case len(parts) == 2 && parts[0] == "api":
		s.resources(w, r, schema.GroupVersion{Version: parts[1]})
		return
	case len(parts) == 3 && parts[0] == "apis":
		s.resources(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		return
	}
	gv, rest := schema.GroupVersion{Version: "v1"}, parts[min(2, len(parts)):]
	if parts[0] == "apis" && len(parts) > 3 {
		gv, rest = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	}
	namespace := ""
	if len(rest) > 2 && rest[0] == "namespaces" {
		namespace, rest = rest[1], rest[2:]
	}
	if len(rest) == 0 {
		http.NotFound(w, r)
		return
	}
	at := key{plural: rest[0], group: gv.Group, namespace: namespace}
	subresource := ""
	if len(rest) > 1 {
		at.name = rest[1]
	}
	if len(rest) > 2 {
		subresource = rest[2]
	}
	s.serveObjects(w, r, gv, at, subresource)
}

func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, at key, subresource string) {
	s.mu.Lock()
	k, ok := s.kindAt(gv, at.plural)
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	switch {
	case r.URL.Query().Get("sendInitialEvents") == "true":
		// As an older server does; informers then list first.
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", nil)
	case r.Method == http.MethodGet && at.name == "" && r.URL.Query().Get("watch") != "":
		s.watch(w, r, at)
	case r.Method == http.MethodGet && at.name == "":
		s.list(w, r, k, at)
	case r.Method == http.MethodGet:
		s.get(w, at)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		s.apply(w, r, at, subresource)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		s.mergePatch(w, r, at)
	case r.Method == http.MethodPost && at.name == "":
		s.create(w, r, at)
	case r.Method == http.MethodPost && at.plural == "pods" && subresource == "eviction":
		s.evict(w, r, at)
	case r.Method == http.MethodDelete && at.name != "":
		s.delete(w, r, at)
	default:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "kubetest does not serve "+r.Method+" "+r.URL.Path, nil)
	}
}

func (s *Server) groups() metav1.APIGroupList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		if k.gvk.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.gvk.GroupVersion().String(), Version: k.gvk.Version}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.gvk.Group })
		if i < 0 {
			i = len(list.Groups)
			list.Groups = append(list.Groups, metav1.APIGroup{Name: k.gvk.Group, PreferredVersion: v})
		}
		if !slices.Contains(list.Groups[i].Versions, v) {
			list.Groups[i].Versions = append(list.Groups[i].Versions, v)
		}
	}
	return list
}

func (s *Server) resources(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.gvk.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.plural, Kind: k.gvk.Kind, Namespaced: k.namespaced,
				Verbs: metav1.Verbs{"get", "list", "watch", "create", "patch", "delete"}})
		}
	}
	if len(list.APIResources) == 0 {
		http.NotFound(w, r)
		return
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) kindAt(gv schema.GroupVersion, plural string) (kind, bool) {
	for _, k := range s.kinds {
		if k.gvk.GroupVersion() == gv && k.plural == plural {
			return k, true
		}
	}
	return kind{}, false
}

func (s *Server) kindOf(gvk schema.GroupVersionKind) (kind, bool) {
	for _, k := range s.kinds {
		if k.gvk == gvk {
			return k, true
		}
	}
	return kind{}, false
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, causes []metav1.StatusCause) {
	refuseWith(w, code, reason, message, metav1.StatusDetails{Causes: causes})
}

func refuseWith(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, details metav1.StatusDetails) {
	reply(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &details,
	})
}
