package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func (s *Server) get(w http.ResponseWriter, at key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets[at.plural]++
	o := s.objects[at]
	if o == nil {
		notFound(w, at)
		return
	}
	reply(w, http.StatusOK, o.data)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, k kind, at key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[at.plural]++
	items := []any{}
	for _, other := range slices.SortedFunc(maps.Keys(s.objects), func(a, b key) int {
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	}) {
		if o := s.objects[other]; selected(r, at, other, o.data) {
			items = append(items, o.data)
		}
	}
	reply(w, http.StatusOK, map[string]any{
		"apiVersion": k.gvk.GroupVersion().String(), "kind": k.gvk.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.revision)}, "items": items,
	})
}

// selected tells whether an object is in the collection of a request.
func selected(r *http.Request, at, other key, data map[string]any) bool {
	if other.plural != at.plural || other.group != at.group || at.namespace != "" && other.namespace != at.namespace {
		return false
	}
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return false
	}
	byField, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return false
	}
	meta := &unstructured.Unstructured{Object: data}
	field := func(path ...string) string { // of a pod, or an event
		value, _, _ := unstructured.NestedString(data, path...)
		return value
	}
	return byLabel.Matches(labels.Set(meta.GetLabels())) &&
		byField.Matches(fields.Set{
			"metadata.name": other.name, "metadata.namespace": other.namespace, "spec.nodeName": field("spec", "nodeName"),
			"type": field("type"), "involvedObject.kind": field("involvedObject", "kind"),
		})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, at key) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	for next := 0; ; {
		s.mu.Lock()
		expired, changed := from < s.expired, s.changed
		var news []event
		if !expired {
			news = slices.Clone(s.log[next:])
			next = len(s.log)
		}
		s.mu.Unlock()
		if expired {
			_ = out.Encode(map[string]any{"type": "ERROR", "object": metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}})
			return
		}
		for _, e := range news {
			if e.revision > from && selected(r, at, e.key, e.data) {
				if out.Encode(map[string]any{"type": e.kind, "object": e.data}) != nil {
					return
				}
			}
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// create stores a new object. Its field manager is the same one as that of an apply.
func (s *Server) create(w http.ResponseWriter, r *http.Request, at key) {
	data := map[string]any{}
	if err := decode(r, &data); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	meta := &unstructured.Unstructured{Object: data}
	s.mu.Lock()
	defer s.mu.Unlock()
	if meta.GetName() == "" {
		meta.SetName(meta.GetGenerateName() + strconv.Itoa(s.revision))
	}
	at.name = meta.GetName()
	if s.objects[at] != nil {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, at.plural+" "+at.name+" already exists", nil)
		return
	}
	if !r.URL.Query().Has("dryRun") {
		s.writes++
		owners := map[string]string{}
		if manager := r.URL.Query().Get("fieldManager"); manager != "" {
			for path := range leaves(data) {
				owners[path] = manager
			}
		}
		s.store(at, &object{data: data, owners: owners})
	}
	reply(w, http.StatusCreated, data)
}

// apply merges a server-side apply patch. Lists are leaves, but for the conditions of a status.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, at key, subresource string) {
	patch := map[string]any{}
	if err := decode(r, &patch); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	manager, force := r.URL.Query().Get("fieldManager"), r.URL.Query().Get("force") == "true"
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case subresource == "":
		delete(patch, "status")
	case at.plural == "nodes": // whose status has the metadata, too
		delete(patch, "spec")
	default:
		patch = map[string]any{subresource: patch[subresource]}
	}
	old := s.objects[at]
	if old == nil && subresource != "" {
		notFound(w, at)
		return
	}
	if text := outdated(patch, old); text != "" {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, text, nil)
		return
	}
	next := &object{data: map[string]any{}, owners: map[string]string{}}
	if old != nil {
		next = &object{data: runtime.DeepCopyJSON(old.data), owners: maps.Clone(old.owners)}
	}
	wanted := leaves(patch)
	var causes []metav1.StatusCause
	for path, value := range wanted {
		owner := next.owners[path]
		if owner != "" && owner != manager && !force && !reflect.DeepEqual(leaves(next.data)[path], value) {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: unescape(path),
				Message: fmt.Sprintf("conflict with %q using v1", owner)})
		}
	}
	if len(causes) > 0 {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "Apply failed with conflicts", causes)
		return
	}
	for path, owner := range next.owners {
		_, still := wanted[path]
		if owner == manager && !still && writable(at, path, subresource) {
			unset(next.data, path)
			delete(next.owners, path)
		}
	}
	for path := range wanted {
		next.owners[path] = manager
	}
	keepConditions(next.data, patch)
	merge(next.data, patch)
	if old != nil && reflect.DeepEqual(old.data, next.data) {
		if r.URL.Query().Get("dryRun") == "" {
			old.owners = next.owners
		}
		reply(w, http.StatusOK, old.data)
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		reply(w, http.StatusOK, next.data)
		return
	}
	s.writes++
	s.store(at, next)
	reply(w, http.StatusOK, next.data)
}

// writable tells whether a write of an object, or of its subresource status, can change a field. The status of a Node has the
// metadata, too.
func writable(at key, path, subresource string) bool {
	if subresource == "" {
		return !strings.HasPrefix(path, ".status")
	}
	return strings.HasPrefix(path, ".status") || at.plural == "nodes" && strings.HasPrefix(path, ".metadata.")
}

// outdated says that a patch was made for another object, or for an older version of it; "" when it was not.
func outdated(patch map[string]any, old *object) string {
	wanted, have := &unstructured.Unstructured{Object: patch}, &unstructured.Unstructured{Object: map[string]any{}}
	if old != nil {
		have.Object = old.data
	}
	if uid := wanted.GetUID(); uid != "" && uid != have.GetUID() {
		return fmt.Sprintf("uid mismatch: the provided object specified uid %s, and the existing one has %q", uid, have.GetUID())
	}
	if version := wanted.GetResourceVersion(); version != "" && version != have.GetResourceVersion() {
		return "the object has been modified; please apply your changes to the latest version and try again"
	}
	return ""
}

// mergePatch changes an object by a JSON merge patch (RFC 7386), whoever owns its fields.
func (s *Server) mergePatch(w http.ResponseWriter, r *http.Request, at key) {
	patch := map[string]any{}
	if err := decode(r, &patch); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[at]
	if old == nil {
		notFound(w, at)
		return
	}
	if text := outdated(patch, old); text != "" {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, text, nil)
		return
	}
	next := &object{data: runtime.DeepCopyJSON(old.data), owners: maps.Clone(old.owners)}
	merge(next.data, patch)
	for path, value := range leaves(patch) {
		next.owners[path] = r.URL.Query().Get("fieldManager")
		if value == nil {
			unset(next.data, path)
			delete(next.owners, path)
		}
	}
	s.writes++
	s.store(at, next)
	reply(w, http.StatusOK, next.data)
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, at key) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[at] == nil {
		notFound(w, at)
		return
	}
	if s.mayDelete(w, at, options) {
		s.finalize(at)
		reply(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	}
}

// mayDelete reports whether an object is the one that the request means, and otherwise refuses it.
func (s *Server) mayDelete(w http.ResponseWriter, at key, options metav1.DeleteOptions) bool {
	meta := &unstructured.Unstructured{Object: s.objects[at].data}
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != meta.GetUID() {
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict,
			fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, meta.GetUID()), nil)
		return false
	}
	return true
}

// finalize deletes an object, which stays as long as it has finalizers.
func (s *Server) finalize(at key) {
	s.writes++
	o := s.objects[at]
	meta := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.data)}
	if len(meta.GetFinalizers()) == 0 {
		s.remove(at)
		return
	}
	now := metav1.NewTime(time.Unix(0, 0))
	meta.SetDeletionTimestamp(&now)
	s.store(at, &object{data: meta.Object, owners: o.owners})
}

// store saves an object, numbers the change and tells the watchers. A CRD's
// kind is served from then on. What is being deleted goes with its last finalizer.
func (s *Server) store(at key, o *object) {
	s.revision++
	meta := &unstructured.Unstructured{Object: o.data}
	if meta.GetUID() == "" {
		meta.SetUID(types.UID("uid-" + strconv.Itoa(s.revision)))
	}
	meta.SetResourceVersion(strconv.Itoa(s.revision))
	if at.group == crdGroup && at.plural == crdPlural {
		s.establish(o.data)
	}
	what := "ADDED"
	if s.objects[at] != nil {
		what = "MODIFIED"
	}
	s.objects[at] = o
	s.log = append(s.log, event{s.revision, what, at, runtime.DeepCopyJSON(o.data)})
	s.broadcast()
	if meta.GetDeletionTimestamp() != nil && len(meta.GetFinalizers()) == 0 {
		s.remove(at)
	}
}

func (s *Server) remove(at key) {
	o := s.objects[at]
	if o == nil {
		return
	}
	s.revision++
	delete(s.objects, at)
	last := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.data)}
	last.SetResourceVersion(strconv.Itoa(s.revision))
	s.log = append(s.log, event{s.revision, "DELETED", at, last.Object})
	if at.group == crdGroup && at.plural == crdPlural {
		gone := crdKindsOf(o.data)
		s.kinds = slices.DeleteFunc(s.kinds, func(k kind) bool { return slices.Contains(gone, k) })
		for other := range s.objects {
			if len(gone) > 0 && other.group == gone[0].gvk.Group && other.plural == gone[0].plural {
				s.remove(other)
			}
		}
	}
	s.broadcast()
}

func (s *Server) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) establish(crd map[string]any) {
	for _, k := range crdKindsOf(crd) {
		if !slices.Contains(s.kinds, k) {
			s.kinds = append(s.kinds, k)
		}
	}
	crd["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "True"},
		map[string]any{"type": "Established", "status": "True"},
	}}
}

// crdKindsOf are the kinds that a definition has the server serve, one for each version;
// nothing is converted between them.
func crdKindsOf(crd map[string]any) (kinds []kind) {
	group, _, _ := unstructured.NestedString(crd, "spec", "group")
	name, _, _ := unstructured.NestedString(crd, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(crd, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(crd, "spec", "scope")
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)["name"].(string)
		kinds = append(kinds, kind{schema.GroupVersionKind{Group: group, Version: version, Kind: name}, plural, scope == "Namespaced"})
	}
	return kinds
}

// keepIdentity copies what the server gave an object when it was created.
func keepIdentity(data, old map[string]any) {
	was, is := &unstructured.Unstructured{Object: old}, &unstructured.Unstructured{Object: data}
	if is.GetUID() == "" {
		is.SetUID(was.GetUID())
	}
}

func notFound(w http.ResponseWriter, at key) {
	refuseWith(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", at.plural, at.name),
		metav1.StatusDetails{Group: at.group, Kind: at.plural, Name: at.name})
}

// decode reads an object from a request; whole numbers are integers, as the API server and
// [unstructured.Unstructured] have them.
func decode(r *http.Request, into *map[string]any) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(body, into)
}
