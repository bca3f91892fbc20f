package job

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// synced is a job of each kind that fetches its code.
func synced(c CodeSync) map[string]Spec {
	specs := map[string]Spec{"plain": plain(), "alpha": alphaShared(), "batch": batch(), "jobset": jobSetPlain(), "mpi": vgg16(), "shared": shared()}
	for name, s := range specs {
		s.CodeSync = &c
		specs[name] = s
	}
	return specs
}

// What is fetched is read back as it is written, of jobs of all kinds.
func TestCodeIsFetched(t *testing.T) {
	for name, c := range map[string]CodeSync{
		"git":            {Source: CodeSyncGit, URL: "https://github.com/kubeflow/arena.git"},
		"git, all of it": {Source: CodeSyncGit, URL: "git@example.com:team/train.git/", Branch: "main", Revision: "v1", Image: "git-sync:v4", Secret: "git"},
		"rsync":          {Source: CodeSyncRsync, URL: "10.88.29.56::backup/data/train.zip"},
		"rsync, by hand": {Source: CodeSyncRsync, URL: "a::b", Image: "rsync:1", Secret: "r"},
	} {
		for kind, s := range synced(c) {
			t.Run(name+", "+kind, func(t *testing.T) {
				require.Empty(t, s.Check())
				obj, err := s.Render()
				require.NoError(t, err)
				read, err := Parse(obj)
				require.NoError(t, err)
				assert.Equal(t, s.Complete().CodeSync, read.CodeSync)
				assert.Equal(t, s.Complete().Volumes, read.Volumes)
				assert.Equal(t, c, *read.Brief().CodeSync)
				pods, err := Pods(obj)
				require.NoError(t, err)
				for _, p := range pods {
					assert.Equal(t, "init-code", p.Spec.InitContainers[0].Name, "before those of the operator")
				}
			})
		}
	}
}

// The container is that of arena's chart: what it fetches is in /code, below the working directory of the program.
func TestContainerThatFetchesCode(t *testing.T) {
	s := synced(CodeSync{Source: CodeSyncGit, URL: "https://github.com/kubeflow/arena.git", Branch: "main", Secret: "git"})["shared"]
	obj, err := s.Render()
	require.NoError(t, err)
	golden(t, "synced.yaml", obj.Object)
	s.CodeSync = &CodeSync{Source: CodeSyncRsync, URL: "a::b"}
	pods, err := s.Pods()
	require.NoError(t, err)
	for _, p := range pods {
		fetch := p.Spec.InitContainers[0]
		assert.Equal(t, []string{"rsync", "-avP", "a::b", "/code"}, fetch.Command)
		assert.NotContains(t, fetch.Resources.Limits, corev1.ResourceName("aliyun.com/gpu-mem"), "GPUs are the program's")
	}
}

// A job that fetches code holds no more than one that does not.
func TestCodeSyncCostsNothing(t *testing.T) {
	for kind, s := range synced(CodeSync{Source: CodeSyncGit, URL: "https://github.com/kubeflow/arena.git"}) {
		with, err := s.PlannerGang(nil)
		require.NoError(t, err)
		s.CodeSync = nil
		without, err := s.PlannerGang(nil)
		require.NoError(t, err)
		for i := range with.Roles {
			assert.Equal(t, without.Roles[i].Request, with.Roles[i].Request, kind)
		}
	}
}

func TestCheckCodeSync(t *testing.T) {
	password := Problem{
		"code_sync", "", "the URL has a password, which everyone could read who may read the job: put GIT_SYNC_USERNAME and GIT_SYNC_PASSWORD into a Secret, and name that as secret",
	}
	for name, test := range map[string]struct {
		sync   CodeSync
		change func(*Spec)
		want   Problem
	}{
		"source":                 {CodeSync{Source: "hdfs", URL: "x"}, nil, Problem{"code_sync", "", `source is "hdfs": it is "git" or "rsync"`}},
		"no URL":                 {CodeSync{Source: CodeSyncGit}, nil, Problem{"code_sync", "", `url: "" is nothing that code comes from`}},
		"option":                 {CodeSync{Source: CodeSyncRsync, URL: "--rsh=sh"}, nil, Problem{"code_sync", "", `url: "--rsh=sh" is nothing that code comes from`}},
		"password with a slash":  {CodeSync{Source: CodeSyncGit, URL: "https://me:sec/ret@example.com/a.git"}, nil, password},
		"password with percents": {CodeSync{Source: CodeSyncGit, URL: "https://me:%zzsecret@example.com/a.git"}, nil, password},
		"password after a space": {CodeSync{Source: CodeSyncGit, URL: " https://me:secret@example.com/a.git"}, nil, password},
		"token of GitHub":        {CodeSync{Source: CodeSyncGit, URL: "https://ghp_secret@github.com/a/b.git"}, nil, password},
		"token of GitLab":        {CodeSync{Source: CodeSyncGit, URL: "https://glpat-secret@gitlab.com/a/b.git"}, nil, password},
		"password":               {CodeSync{Source: CodeSyncGit, URL: "https://me:secret@example.com/a.git"}, nil, password},
		"no repository":          {CodeSync{Source: CodeSyncGit, URL: "https://example.com/.git"}, nil, Problem{"code_sync", "", `url: "https://example.com/.git" does not end in the name of a repository`}},
		"branch of rsync": {CodeSync{Source: CodeSyncRsync, URL: "a::b", Branch: "main"}, nil, Problem{
			"code_sync", "", "rsync knows neither branches nor revisions: leave branch and revision out",
		}},
		"dash":   {CodeSync{Source: CodeSyncGit, URL: "a/b", Revision: "-x"}, nil, Problem{"code_sync", "", "branch and revision do not begin with a dash"}},
		"secret": {CodeSync{Source: CodeSyncGit, URL: "a/b", Secret: "A"}, nil, Problem{Field: "code_sync"}},
		"volume of that name": {
			CodeSync{Source: CodeSyncGit, URL: "a/b"}, func(s *Spec) { s.Volumes = map[string]Volume{"code-sync": {Claim: "c", MountPath: "/data"}} },
			Problem{"volumes", "", `the name "code-sync" is kept for code_sync: choose another`},
		},
		"volume at that place": {
			CodeSync{Source: CodeSyncGit, URL: "a/b"}, func(s *Spec) { s.Volumes = map[string]Volume{"v": {Claim: "c", MountPath: "/code/"}} },
			Problem{"volumes", "", `volume "v": /code is taken by code_sync`},
		},
		"variable": {
			CodeSync{Source: CodeSyncGit, URL: "a/b"}, func(s *Spec) { set(s, "worker", func(r *Role) { r.Env = map[string]string{"GIT_SYNC_ROOT": "/x"} }) },
			Problem{"env", "worker", "GIT_SYNC_ROOT is set by the attribute code_sync: leave it out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := plain()
			s.CodeSync = &test.sync
			if test.change != nil {
				test.change(&s)
			}
			problems := s.Check()
			require.Len(t, problems, 1)
			if test.want.Text == "" {
				problems[0].Text = ""
			}
			assert.Equal(t, test.want, problems[0])
		})
	}
}
