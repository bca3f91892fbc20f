package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/inventory"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/job"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// Answer is what the cluster says to a job that is to be created.
type Answer struct {
	// Admission is what it makes of the job's pods.
	Admission job.Admission
	// Stored is the job as it would store it, nil when it did not say.
	Stored *job.Spec
	// Draws are what the job takes of the namespace, where that has it left.
	Draws []Draw

	findings []Finding
	// apart are those about members on several nodes.
	apart []Finding
}

// Draw is what a job takes of something: Of says of what, within a sentence.
type Draw struct {
	Of          string
	Asked, Left quantity.Quantity
}

// Findings are what would stop an apply when the members are planned on that many nodes, 0
// when that is unknown.
func (a Answer) Findings(nodes int) []Finding {
	if nodes > 1 {
		return slices.Concat(a.findings, a.apart)
	}
	return a.findings
}

// ClassOf returns the StorageClass of a name.
type ClassOf func(ctx context.Context, name string) (*storagev1.StorageClass, error)

// Job checks what it takes to create a job and its pods; unknown claims are left out. classOf finds a
// StorageClass by its name.
func Job(ctx context.Context, client *kube.Client, spec job.Spec, unknownClaim string, classOf ClassOf) Answer {
	c := &check{Client: client, ctx: ctx, spec: spec, unknownClaim: unknownClaim, classOf: classOf}
	c.findings = lacking(ctx, client, rights(spec))
	if !c.served() {
		return c.Answer
	}
	c.names()
	c.taken()
	c.claims()
	c.job()
	if !c.incomplete {
		c.pods()
	}
	c.resourceQuotas()
	return c.Answer
}

// OnHub checks what it takes to create a job on the hub of a fleet, which keeps the object alone: its pods are in a member cluster.
func OnHub(ctx context.Context, hub *kube.Client, spec job.Spec) []Finding {
	c := &check{Client: hub, ctx: ctx, spec: spec, onHub: true}
	if c.findings = lacking(ctx, hub, onJobs(spec, "get", "list", "watch", "create", "patch", "delete")); !c.served() {
		return c.findings
	}
	if _, err := c.Typed.CoreV1().Namespaces().Get(ctx, spec.Namespace, metav1.GetOptions{}); !c.absent(err, namespace, "Namespace", spec.Namespace) {
		c.job()
	}
	return c.findings
}

// Resume checks what it takes that the pods of a job which exists start.
func Resume(ctx context.Context, client *kube.Client, spec job.Spec, unknownClaim string, classOf ClassOf) Answer {
	c := &check{Client: client, ctx: ctx, spec: spec, unknownClaim: unknownClaim, classOf: classOf}
	c.names()
	c.claims()
	if !c.incomplete {
		c.pods()
	}
	c.resourceQuotas()
	return c.Answer
}

// Refusal is what an error says that the server answers to a job's change in a dry run.
func Refusal(spec job.Spec, err error) []Finding {
	c := &check{spec: spec}
	c.refused(itself, "change "+spec.GVK().Kind+" "+spec.ID(), err)
	return c.findings
}

// Admission asks what the cluster makes of a job's pods, and nothing else.
func Admission(ctx context.Context, client *kube.Client, spec job.Spec) job.Admission {
	c := &check{Client: client, ctx: ctx, spec: spec}
	c.pods()
	return c.Admission
}

// Missing says what the pods of a job that is about to start name and the cluster does not have, or not for long; unknown claims are left
// out. What a plan has seen may have gone since. Without its namespace a job is not created, which says why.
func Missing(ctx context.Context, client *kube.Client, spec job.Spec, unknownClaim string) []Finding {
	c := &check{Client: client, ctx: ctx, spec: spec, unknownClaim: unknownClaim}
	if c.names(); len(c.missing) > 0 && c.missing[0].Attribute == namespace {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Volumes)) {
		c.present(name, spec.Volumes[name])
	}
	return c.missing
}

// JobChange asks for the rights to change a job in place, and to follow it, and looks for what keeps arena from
// knowing it.
func JobChange(ctx context.Context, client *kube.Client, before, after job.Spec) []Finding {
	needed := slices.Concat(onJobs(after, "get", "list", "watch", "patch"), onCore(after, "pods", "list", "watch"))
	if before.Arena != after.Arena {
		needed = slices.Concat(needed, onCore(after, "pods", "patch"), onCore(after, "configmaps", configMapVerbs...))
	}
	if before.TensorBoard != nil || after.TensorBoard != nil {
		needed = slices.Concat(needed, onTensorBoard(after))
	}
	c := &check{Client: client, ctx: ctx, spec: after}
	c.findings = lacking(ctx, client, needed)
	if !before.Arena {
		c.takenFromArena()
	}
	if before.TensorBoard == nil {
		c.takenFromTensorBoard()
	}
	if !before.Queue {
		c.takenFromQueue()
	}
	return c.findings
}

// rights are those that it takes to create a job, follow it, and delete it again.
func rights(spec job.Spec) []kube.Right {
	needed := slices.Concat(onJobs(spec, "get", "list", "watch", "create", "patch", "delete"), onCore(spec, "pods", "list", "watch", "delete"))
	if spec.Framework == job.TrainJob { // what is left of it when it is gone
		needed = slices.Concat(needed, inNamespace(spec, contract.JobSetGroup, contract.JobSetResource, []string{"get", "list", "watch", "delete"}),
			inNamespace(spec, batchv1.GroupName, contract.BatchJobResource, []string{"list", "watch", "delete"}))
	}
	if spec.Arena {
		needed = slices.Concat(needed, onCore(spec, "configmaps", configMapVerbs...))
	}
	if spec.TensorBoard != nil {
		needed = slices.Concat(needed, onTensorBoard(spec))
	}
	return needed
}

// onTensorBoard are the rights on what shows what the job logs.
func onTensorBoard(spec job.Spec) []kube.Right {
	verbs := []string{"get", "create", "patch", "delete"}
	return slices.Concat(inNamespace(spec, appsv1.GroupName, "deployments", verbs), onCore(spec, "services", verbs...))
}

// configMapVerbs are what it takes to tell arena of a job, and that there is none any more.
var configMapVerbs = []string{"get", "create", "patch", "delete"}

// onJobs are rights on jobs of the framework in the job's namespace.
func onJobs(spec job.Spec, verbs ...string) (needed []kube.Right) {
	for _, r := range spec.Framework.Resources() {
		needed = append(needed, inNamespace(spec, r.Group, r.Resource, verbs)...)
	}
	return needed
}

// onCore are rights on a resource of Kubernetes' own in the job's namespace.
func onCore(spec job.Spec, resource string, verbs ...string) []kube.Right {
	return inNamespace(spec, "", resource, verbs)
}

func inNamespace(spec job.Spec, group, resource string, verbs []string) (rights []kube.Right) {
	for _, verb := range verbs {
		rights = append(rights, kube.Right{Verb: verb, Group: group, Resource: resource, Namespace: spec.Namespace})
	}
	return rights
}

type check struct {
	*kube.Client
	ctx          context.Context
	spec         job.Spec
	unknownClaim string
	classOf      ClassOf
	// onHub means that the job's pods are in another cluster.
	onHub bool
	// members means that the cluster is one of them, and unmet is what it does not have then.
	members *Members
	unmet   map[named]bool

	Answer
	// missing are those of the findings that say that something is absent, or about to be.
	missing []Finding
	// incomplete means that something is absent without which admission refuses pods.
	incomplete bool
}

func (c *check) add(attribute, summary, format string, args ...any) {
	c.findings = append(c.findings, Finding{Attribute: attribute, Summary: summary, Detail: fmt.Sprintf(format, args...)})
}

// namespace is the attribute of the namespace, without which a job is not created.
const namespace = "namespace"

// absent reports an object that does not exist, and whether err says so.
func (c *check) absent(err error, attribute, kind, name string) bool {
	if !kube.IsNotFound(err) {
		return false
	}
	if what := (named{attribute, kind, name}); c.members != nil {
		if c.members.arrives(c.ctx, c.spec, what) {
			return false
		}
		if c.unmet == nil {
			c.unmet = map[named]bool{}
		}
		c.unmet[what] = true
		return true
	}
	detail := fmt.Sprintf("Job %s needs the %s %s, which the cluster does not have now. "+
		"When another resource of this configuration creates it, name that resource in depends_on of the job, so that it comes first.", c.spec.ID(), kind, name)
	if attribute != namespace {
		detail += " The job does not run before it is there."
	}
	c.miss(attribute, kind+" does not exist", detail)
	return true
}

// miss warns of something that the job's pods need and that may be there by then.
func (c *check) miss(attribute, summary, detail string) {
	f := Finding{Warning: true, Attribute: attribute, Summary: summary, Detail: detail}
	c.findings, c.missing = append(c.findings, f), append(c.missing, f)
}

// served reports whether the cluster has the job's kind, in the version that is written.
func (c *check) served() bool {
	kind := c.spec.GVK()
	_, err := c.Rights(object(c.spec), "create")
	if err == nil && c.spec.Framework == job.TrainJob {
		if serves, asked := c.Serves(job.RuntimeGVK()); asked == nil && !serves {
			c.findings = append(c.findings, Finding{Warning: true, Attribute: "framework", Summary: "The job's kind is not served", Detail: fmt.Sprintf(
				"The cluster serves no %s now, without which job %s cannot be created: %s is installed in part.", contract.TrainingRuntimeKind, c.spec.ID(), c.spec.Framework.Runner())})
			return false
		}
	}
	if !errors.Is(err, kube.ErrNotServed) {
		return err == nil
	}
	version, served, err := c.Served(c.ctx, kind.Group, kind.Kind)
	switch {
	case err != nil:
	case served:
		c.add("framework", "The job's kind is served in another version",
			"The cluster serves %s in version %s of %s, and this provider writes %s: install %s instead of what is there.",
			kind.Kind, version, kind.Group, kind.Version, c.spec.Framework.Runner())
	case c.onHub:
		c.findings = append(c.findings, Finding{Warning: true, Attribute: "framework", Summary: "The job's kind is not served", Detail: fmt.Sprintf(
			"The hub serves no %s now, without which job %s cannot be created: it needs the CRD of that kind, as its member clusters have it, and no operator.", kind.Kind, c.spec.ID())})
	default:
		c.findings = append(c.findings, Finding{Warning: true, Attribute: "framework", Summary: "The job's kind is not served", Detail: fmt.Sprintf(
			"The cluster serves no %s now. Job %s needs %s; when this configuration installs it, name that resource in depends_on of the job.",
			kind.Kind, c.spec.ID(), c.spec.Framework.Runner())})
	}
	return false
}

func object(spec job.Spec) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(spec.GVK())
	obj.SetNamespace(spec.Namespace)
	return obj
}

// names looks for the objects that the pods name.
func (c *check) names() {
	core, s := c.Typed.CoreV1(), c.spec
	_, err := core.Namespaces().Get(c.ctx, s.Namespace, metav1.GetOptions{})
	if c.absent(err, namespace, "Namespace", s.Namespace) {
		c.incomplete = true
		return // and nothing is in it
	}
	if s.PriorityClass != "" {
		_, err := c.Typed.SchedulingV1().PriorityClasses().Get(c.ctx, s.PriorityClass, metav1.GetOptions{})
		c.incomplete = c.absent(err, "priority_class", "PriorityClass", s.PriorityClass) || c.incomplete
	}
	if s.ServiceAccount != "" {
		_, err := core.ServiceAccounts(s.Namespace).Get(c.ctx, s.ServiceAccount, metav1.GetOptions{})
		c.incomplete = c.absent(err, "service_account", "ServiceAccount", s.Namespace+"/"+s.ServiceAccount) || c.incomplete
	}
	for _, name := range s.ImagePullSecrets {
		secret, err := core.Secrets(s.Namespace).Get(c.ctx, name, metav1.GetOptions{})
		c.absent(err, "image_pull_secrets", "Secret", s.Namespace+"/"+name)
		if err == nil && secret.Type != corev1.SecretTypeDockerConfigJson && secret.Type != corev1.SecretTypeDockercfg {
			c.findings = append(c.findings, Finding{Warning: true, Attribute: "image_pull_secrets", Summary: "Secret is none for images", Detail: fmt.Sprintf(
				"The Secret %s/%s has the type %s. Nodes pull images with Secrets of the type %s alone, and ignore others: create it with `kubectl create secret docker-registry`.",
				s.Namespace, name, secret.Type, corev1.SecretTypeDockerConfigJson)})
		}
	}
}

// claims looks at the volume claims: whether they are there, can be bound, and can be
// mounted by as many as will.
func (c *check) claims() {
	if c.incomplete && slices.ContainsFunc(c.findings, func(f Finding) bool { return f.Attribute == namespace }) {
		return
	}
	for name, v := range c.spec.Volumes {
		if claim := c.present(name, v); claim != nil {
			c.claim(name, v, claim)
		}
	}
}

// present is the claim of a volume, nil where it cannot be looked at: it is not known, absent, or about to be.
func (c *check) present(name string, v job.Volume) *corev1.PersistentVolumeClaim {
	if v.Claim == c.unknownClaim {
		return nil
	}
	id := c.spec.Namespace + "/" + v.Claim
	claim, err := c.Typed.CoreV1().PersistentVolumeClaims(c.spec.Namespace).Get(c.ctx, v.Claim, metav1.GetOptions{})
	switch {
	case err != nil:
		c.absent(err, "volumes", "PersistentVolumeClaim", id)
		return nil
	case claim.DeletionTimestamp != nil:
		c.miss("volumes", "Volume claim is being deleted", fmt.Sprintf(
			"Volume %q of job %s is the claim %s, which is being deleted: no new pod can mount it, so the job waits until there is another of that name.", name, c.spec.ID(), id))
		return nil
	}
	return claim
}

func (c *check) claim(name string, v job.Volume, claim *corev1.PersistentVolumeClaim) {
	id := claim.Namespace + "/" + claim.Name
	switch claim.Status.Phase {
	case corev1.ClaimLost:
		c.add("volumes", "Volume claim is lost", "Volume %q of job %s is the claim %s, whose volume no longer exists: no pod can mount it.", name, c.spec.ID(), id)
		return
	case corev1.ClaimPending:
		if !c.bindsLater(claim) {
			c.findings = append(c.findings, Finding{Warning: true, Attribute: "volumes", Summary: "Volume claim is not bound", Detail: fmt.Sprintf(
				"Volume %q of job %s is the claim %s, which is not bound, and does not wait for a pod either: the job waits until it is. `kubectl -n %s describe pvc %s` says why.",
				name, c.spec.ID(), id, claim.Namespace, claim.Name)})
		}
	}
	modes := claim.Status.AccessModes
	if len(modes) == 0 {
		modes = claim.Spec.AccessModes
	}
	only := func(allowed ...corev1.PersistentVolumeAccessMode) bool {
		return len(modes) > 0 && !slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(allowed, m) })
	}
	switch {
	case only(corev1.ReadWriteOncePod) && len(c.spec.Roles) > 0 && c.replicas() > 1:
		c.add("volumes", "Volume claim is for one pod", "Volume %q of job %s is the claim %s, which one pod can mount (ReadWriteOncePod), and the job has %d.", name, c.spec.ID(), id, c.replicas())
	case only(corev1.ReadWriteOncePod):
		if pod := c.mountedBy(claim); pod != "" {
			c.findings = append(c.findings, Finding{Warning: true, Attribute: "volumes", Summary: "Volume claim is in use", Detail: fmt.Sprintf(
				"Volume %q of job %s is the claim %s, which one pod can mount (ReadWriteOncePod), and pod %s has it: the job waits until that has gone.", name, c.spec.ID(), id, pod)})
		} else {
			one := *quantity.NewQuantity(1, quantity.DecimalSI)
			c.Draws = append(c.Draws, Draw{Of: "mounts of claim " + id + " (ReadWriteOncePod)", Asked: one, Left: one})
		}
	case only(corev1.ReadWriteOnce, corev1.ReadWriteOncePod):
		c.apart = append(c.apart, Finding{Attribute: "volumes", Summary: "Volume claim is for one node", Detail: fmt.Sprintf(
			"Volume %q of job %s is the claim %s, which one node can mount (ReadWriteOnce), and the members are planned on several nodes. Use a claim with ReadWriteMany.", name, c.spec.ID(), id)})
	case only(corev1.ReadOnlyMany) && !v.ReadOnly:
		c.add("volumes", "Volume claim is read-only", "Volume %q of job %s is the claim %s, which can be read only (ReadOnlyMany): set read_only = true.", name, c.spec.ID(), id)
	}
}

// mountedBy names a pod that has a claim and is none of the job's own, "" where none is known.
func (c *check) mountedBy(claim *corev1.PersistentVolumeClaim) string {
	pods, err := c.Typed.CoreV1().Pods(claim.Namespace).List(c.ctx, metav1.ListOptions{})
	if err != nil {
		return ""
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if c.spec.OwnsPod(p) || p.Spec.NodeName == "" || inventory.Finished(p) {
			continue
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		}) {
			return p.Namespace + "/" + p.Name
		}
	}
	return ""
}

func (c *check) replicas() (n int32) {
	for _, r := range c.spec.Roles {
		n += r.Replicas
	}
	return n
}

// bindsLater reports whether a claim waits for its first pod, or that cannot be found out.
func (c *check) bindsLater(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return false
	}
	class, err := c.classOf(c.ctx, *claim.Spec.StorageClassName)
	if err != nil {
		return !kube.IsNotFound(err)
	}
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// job asks the server whether it would create the job, and what it would make of it.
func (c *check) job() {
	obj, err := c.spec.Render()
	if err != nil || c.missingCreate(obj) {
		return
	}
	create := func(obj *unstructured.Unstructured) *unstructured.Unstructured {
		stored, err := c.TryCreate(c.ctx, obj)
		switch {
		case job.MissesRuntime(err): // the apply creates the runtime before
			return obj
		case apierrors.IsAlreadyExists(err): // one that is replaced, or of someone else
			next := obj.DeepCopy()
			next.SetName(obj.GetName() + "-next")
			if stored, err = c.TryCreate(c.ctx, next); err != nil {
				return nil
			}
			stored.SetName(obj.GetName())
		}
		c.refused(itself, "create "+obj.GetKind()+" "+c.spec.ID(), err)
		if err != nil {
			return nil
		}
		return stored
	}
	runtime, bare := job.Split(obj)
	whole := true
	if runtime != nil {
		runtime = create(runtime)
		whole = runtime != nil
	}
	stored := create(bare)
	if stored == nil || !whole || c.onHub {
		return
	}
	c.refused("roles", "create the Jobs of "+obj.GetKind()+" "+c.spec.ID(), Jobs(c.ctx, c.Client, c.spec))
	job.Join(stored, runtime)
	if spec, err := job.Parse(stored); err == nil {
		c.Stored = &spec
	}
}

// Jobs asks the server whether it would create the Jobs of a JobSet, nil where the user of the kubeconfig may not. The error is the
// server's own.
func Jobs(ctx context.Context, client *kube.Client, spec job.Spec) error {
	jobs, err := spec.Jobs()
	if err != nil || len(jobs) == 0 {
		return err
	}
	may, err := client.Has(ctx, kube.Right{Verb: "create", Group: batchv1.GroupName, Resource: "jobs", Namespace: spec.Namespace})
	if err != nil || !may {
		return err
	}
	for _, made := range jobs {
		_, err := client.Typed.BatchV1().Jobs(spec.Namespace).Create(ctx, made, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// pods asks the server whether it would create a pod of each role, and what it would add.
func (c *check) pods() {
	sample, err := c.spec.Sample()
	if err != nil {
		return
	}
	c.Admission = job.Admission{}
	for _, pod := range sample {
		for i := range pod.Spec.InitContainers { // the operator's own
			if pod.Spec.InitContainers[i].Image == "" {
				pod.Spec.InitContainers[i].Image = "operator"
			}
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			continue
		}
		delete(content, "status")
		object := &unstructured.Unstructured{Object: content}
		if c.missingCreate(object) {
			return
		}
		admitted, err := c.TryCreate(c.ctx, object)
		if apierrors.IsAlreadyExists(err) { // one of a job that is replaced, or of someone else
			object.SetName(pod.Name + "-next")
			admitted, err = c.TryCreate(c.ctx, object)
		}
		c.refused("roles", "create the pods of role "+job.RoleOf(pod), err)
		made := &corev1.Pod{}
		if err == nil && runtime.DefaultUnstructuredConverter.FromUnstructured(admitted.Object, made) == nil {
			c.Admission[job.RoleOf(pod)] = job.Admitted{Predicted: pod, Pod: made}
		}
	}
}

func (c *check) missingCreate(obj *unstructured.Unstructured) bool {
	rights, err := c.Rights(obj, "create")
	if err != nil {
		return true
	}
	has, err := c.Has(c.ctx, rights[0])
	return err != nil || !has
}

// itself is the attribute of what the cluster says of the job's object, and not of its pods.
const itself = "framework"

// strict begins the list of fields that the served schema does not have.
const strict = "strict decoding error: "

// refused reports why the server would not do something, such as "create Job default/a". Quota may be free by then.
func (c *check) refused(attribute, deed string, err error) {
	if err == nil {
		return
	}
	text := err.Error()
	_, fields, unknown := strings.Cut(text, strict)
	switch {
	case unknown:
		beside := ", arena's own has fewer fields"
		if c.spec.Framework.AsJobSet() {
			beside = ""
		}
		c.add(attribute, "The served kind lacks fields",
			"The cluster would drop or refuse fields to %s: %s. Its CRD is not that of %s: install that one%s.", deed, fields, c.spec.Framework.Runner(), beside)
	case attribute == itself && apierrors.IsForbidden(err) && strings.Contains(text, quotaExceeded) && !MayPass(text):
		c.add(attribute, quotaTooSmall, "The cluster would never %s: %s. Raise the quota.", deed, text)
	case apierrors.IsForbidden(err) && strings.Contains(text, quotaExceeded):
		then := "The job waits"
		if attribute == itself {
			then = "The apply cannot create it"
		}
		c.findings = append(c.findings, Finding{Warning: true, Attribute: attribute, Summary: noQuota, Detail: fmt.Sprintf(
			"The cluster would not %s now: %s. %s until there is room in the namespace's ResourceQuota.", deed, text, then)})
	case kube.IsRefusal(err):
		c.add(attribute, "The cluster refuses the job", "The cluster would not %s: %s.%s", deed, strings.TrimSuffix(text, "."), wayOut(text))
	case apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, kube.ErrNotServed) || apierrors.IsUnauthorized(err):
		// Others say so, or the plan is what makes it exist or go.
	case !slices.ContainsFunc(c.findings, func(f Finding) bool { return f.Attribute == attribute && f.Summary == notAsked }):
		c.findings = append(c.findings, Finding{Warning: true, Attribute: attribute, Summary: notAsked, Detail: fmt.Sprintf(
			"Whether the cluster would %s, and what it would add, the plan could not ask: %s. What it plans holds only if admission adds nothing that matters.", deed, strings.TrimSuffix(text, "."))})
	}
}

// notAsked is the summary of a question that admission did not answer.
const notAsked = "Admission is not checked"

// wayOut says how a job does without what the Pod Security Standards refuse and it may have by default.
func wayOut(refusal string) (advice string) {
	if strings.Contains(refusal, "host namespaces") {
		advice += " With host_ipc, host_network and host_pid set to false the job keeps to its own, and NCCL uses no NVLink between its pods."
	}
	if strings.Contains(refusal, "IPC_LOCK") {
		advice += " With rdma_defaults = false the pods do without the capability."
	}
	return advice
}
