package job

import (
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

// CodeSync fetches code into each replica before it starts, as `arena submit --sync-mode` has it (kubeflow/arena v0.15,
// charts/pytorchjob/templates/pytorchjob.yaml).
type CodeSync struct {
	// Source is how: [CodeSyncGit] or [CodeSyncRsync].
	Source string
	// URL is the repository, or what rsync copies.
	URL string
	// Branch and Revision are what is checked out of a repository; "" is what git-sync takes itself.
	Branch, Revision string
	// Image fetches the code; "" means arena's.
	Image string
	// Secret is a Secret in the job's namespace, whose keys are variables of the container that fetches the code.
	Secret string
}

// Sources of code.
const (
	CodeSyncGit   = "git"
	CodeSyncRsync = "rsync"
)

const (
	codeSyncContainer = "init-code"
	codeSyncVolume    = "code-sync"
	codeSyncPath      = "/code"
)

// codeSyncImages are those of arena's charts, by source.
var codeSyncImages = map[string]string{
	CodeSyncGit:   "registry.cn-zhangjiakou.aliyuncs.com/acs/git-sync:v3.3.5",
	CodeSyncRsync: "registry.cn-zhangjiakou.aliyuncs.com/acs/rsync:v3.1.0-aliyun",
}

// Variables of git-sync 3.
const (
	gitSyncRepo     = "GIT_SYNC_REPO"
	gitSyncBranch   = "GIT_SYNC_BRANCH"
	gitSyncRevision = "GIT_SYNC_REV"
	gitSyncDest     = "GIT_SYNC_DEST"
	gitSyncRoot     = "GIT_SYNC_ROOT"
	gitSyncOnce     = "GIT_SYNC_ONE_TIME"
)

// completeCodeSync spells out the image.
func (s *Spec) completeCodeSync() {
	if s.CodeSync == nil || s.CodeSync.Image != "" {
		return
	}
	c := *s.CodeSync
	c.Image = codeSyncImages[c.Source]
	s.CodeSync = &c
}

// briefCodeSync is the inverse.
func (s *Spec) briefCodeSync() {
	if s.CodeSync == nil || s.CodeSync.Image != codeSyncImages[s.CodeSync.Source] {
		return
	}
	c := *s.CodeSync
	c.Image = ""
	s.CodeSync = &c
}

// project is the folder of a repository's code, as arena names it.
func (c CodeSync) project() string {
	name, _, _ := strings.Cut(path.Base(strings.Trim(c.URL, "/")), ".git")
	return name
}

// codePath is where a role's container has the code.
func (r Role) codePath() string { return path.Join("/", r.WorkingDir, codeSyncPath) }

// syncCode has a pod fetch the code before its container starts.
func (s Spec) syncCode(pod *corev1.PodSpec, r Role) {
	c := s.CodeSync
	if c == nil {
		return
	}
	mount := corev1.VolumeMount{Name: codeSyncVolume, MountPath: codeSyncPath}
	fetch := corev1.Container{
		Name: codeSyncContainer, Image: c.Image, ImagePullPolicy: s.ImagePullPolicy,
		VolumeMounts: []corev1.VolumeMount{mount},
	}
	if s.Version != contract.MPIAlphaVersion { // its launcher, of the same template, asks for nothing
		fetch.Resources = s.resources(Role{CPU: r.CPU, Memory: r.Memory})
	}
	variables := r.Env
	if c.Source == CodeSyncGit {
		variables = merge(r.Env, map[string]string{gitSyncRepo: c.URL, gitSyncDest: c.project(), gitSyncRoot: codeSyncPath, gitSyncOnce: "true"},
			unlessEmpty(gitSyncBranch, c.Branch), unlessEmpty(gitSyncRevision, c.Revision))
	} else {
		fetch.Command = []string{"rsync", "-avP", c.URL, codeSyncPath}
	}
	for _, key := range slices.Sorted(maps.Keys(variables)) {
		fetch.Env = append(fetch.Env, corev1.EnvVar{Name: key, Value: variables[key]})
	}
	if c.Secret != "" {
		fetch.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: c.Secret}}}}
	}
	pod.InitContainers = append(pod.InitContainers, fetch)
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: codeSyncVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	mount.MountPath = r.codePath()
	main := &pod.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, mount)
}

func unlessEmpty(key, value string) map[string]string {
	if value == "" {
		return nil
	}
	return map[string]string{key: value}
}

// parseCodeSync reads back what syncCode wrote, nil for a pod that fetches no code, or in another way.
func parseCodeSync(pod corev1.PodSpec) *CodeSync {
	i := slices.IndexFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == codeSyncContainer })
	if i < 0 {
		return nil
	}
	fetch := pod.InitContainers[i]
	c := &CodeSync{Image: fetch.Image}
	for _, from := range fetch.EnvFrom {
		if from.SecretRef != nil {
			c.Secret = from.SecretRef.Name
		}
	}
	if len(fetch.Command) == 4 && fetch.Command[0] == "rsync" {
		c.Source, c.URL = CodeSyncRsync, fetch.Command[2]
		return c
	}
	for _, variable := range fetch.Env {
		switch variable.Name {
		case gitSyncRepo:
			c.Source, c.URL = CodeSyncGit, variable.Value
		case gitSyncBranch:
			c.Branch = variable.Value
		case gitSyncRevision:
			c.Revision = variable.Value
		}
	}
	if c.URL == "" {
		return nil
	}
	return c
}

// checkCodeSync holds the rules of how code is fetched.
func (s Spec) checkCodeSync(add report) {
	c := s.CodeSync
	if c == nil {
		return
	}
	switch {
	case c.Source != CodeSyncGit && c.Source != CodeSyncRsync:
		add("", "code_sync", "source is %q: it is %q or %q", short(c.Source), CodeSyncGit, CodeSyncRsync)
	case hasPassword(c.URL): // before any text that shows the URL
		add("", "code_sync", "the URL has a password, which everyone could read who may read the job: put GIT_SYNC_USERNAME and GIT_SYNC_PASSWORD into a Secret, and name that as secret")
	case strings.TrimSpace(c.URL) != c.URL || c.URL == "" || strings.HasPrefix(c.URL, "-") || strings.ContainsRune(c.URL, 0):
		add("", "code_sync", "url: %q is nothing that code comes from", short(c.URL))
	case c.Source == CodeSyncGit && strings.Trim(c.project(), ".") == "":
		add("", "code_sync", "url: %q does not end in the name of a repository", short(c.URL))
	case c.Source == CodeSyncRsync && c.Branch+c.Revision != "":
		add("", "code_sync", "rsync knows neither branches nor revisions: leave branch and revision out")
	}
	if strings.HasPrefix(c.Branch, "-") || strings.HasPrefix(c.Revision, "-") {
		add("", "code_sync", "branch and revision do not begin with a dash")
	}
	if c.Secret != "" {
		for _, text := range validation.IsDNS1123Subdomain(c.Secret) {
			add("", "code_sync", "%q cannot be a secret: %s", short(c.Secret), text)
		}
	}
	if _, taken := s.Volumes[codeSyncVolume]; taken {
		add("", "volumes", "the name %q is kept for code_sync: choose another", codeSyncVolume)
	}
	for _, name := range s.RoleNames() {
		r := s.Roles[name]
		for _, key := range []string{gitSyncRepo, gitSyncBranch, gitSyncRevision, gitSyncDest, gitSyncRoot, gitSyncOnce} {
			if _, taken := r.Env[key]; taken {
				add(name, "env", "%s is set by the attribute code_sync: leave it out", key)
			}
		}
		for _, volume := range slices.Sorted(maps.Keys(s.Volumes)) {
			if path.Clean(s.Volumes[volume].MountPath) == r.codePath() {
				add("", "volumes", "volume %q: %s is taken by code_sync", short(volume), r.codePath())
			}
		}
	}
}

// withPassword is a URL with a password that others than net/url may read, such as one with a "/" in it.
var withPassword = regexp.MustCompile(`^\s*[^/@:]+://[^@]*:[^@]*@`)

// token is how access tokens of GitHub and GitLab begin, which stand in a URL without a user.
var token = regexp.MustCompile(`^(gh[a-z]_|github_pat_|gl[a-z]+-)`)

// hasPassword reports whether a URL says a password.
func hasPassword(text string) bool {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return withPassword.MatchString(text)
	}
	_, has := u.User.Password()
	return has || token.MatchString(u.User.Username())
}
