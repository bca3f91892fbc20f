package schedulerperf

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/test/integration/framework"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/clustercache"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/hooks"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/metrics"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/allocate"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/gang"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/preemption"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/quota"
	"github.com/gpuplan/terraform-provider-gpuplan/scheduler/plugins/room"
)

func TestMain(m *testing.M) {
	url, stop, err := framework.RunCustomEtcd(klog.Background(), "schedulerperf", []string{"--unsafe-no-fsync"})
	if err == nil {
		err = os.Setenv("KUBE_INTEGRATION_ETCD_URL", url)
	}
	if err == nil {
		err = perf.InitTests()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

func BenchmarkPerfScheduling(b *testing.B) {
	config, crd, err := install(b.TempDir())
	require.NoError(b, err)
	for _, w := range workloads() {
		for _, s := range spellings(config) {
			file, err := s.write(b.TempDir(), w)
			require.NoError(b, err)
			o := &own{}
			options := []perf.SchedulerPerfOption{}
			registry := frameworkruntime.Registry{}
			if s.config != "" {
				registry = o.registry()
				options = append(options, perf.WithPreRunFn(o.renew), perf.WithNodeUpdateFn(o.attach), perf.WithPrepareFn(func(ctx ktesting.TContext) error {
					client, err := kube.New(ctx.RESTConfig())
					if err != nil {
						return err
					}
					return client.ApplyAll(ctx, crd, nil)
				}))
			}
			perf.RunBenchmarkPerfScheduling(b, file, "gangs", registry, options...)
		}
	}
}

// install writes the configuration that our scheduler is installed with, and returns
// its path and the custom resources that are installed with it.
func install(dir string) (config string, crds []*unstructured.Unstructured, err error) {
	objects, err := deploy.Objects(deploy.Options{Image: "bench"})
	if err != nil {
		return "", nil, err
	}
	config = filepath.Join(dir, "scheduler.yaml")
	for _, object := range objects {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			crds = append(crds, object)
		case "ConfigMap":
			text, _, err := unstructured.NestedString(object.Object, "data", "scheduler.yaml")
			if err != nil {
				return "", nil, err
			}
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				return "", nil, err
			}
		}
	}
	return config, crds, nil
}

// own is what our scheduler's program adds to a scheduler, again for every workload.
type own struct {
	cache *clustercache.Cache
	gangs *gang.Plugin
}

func (o *own) renew(ktesting.TContext, *perf.Workload) (func(), error) {
	o.cache, o.gangs = clustercache.New(), nil
	return func() {}, nil
}

func (o *own) registry() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		allocate.Name: allocate.Factory(func(*allocate.Plugin) {}),
		quota.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return quota.Factory(o.cache)(ctx, args, handle)
		},
		preemption.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return preemption.Factory(o.cache)(ctx, args, handle)
		},
		room.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return room.Factory(o.cache)(ctx, args, handle)
		},
		gang.Name: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return gang.Factory(o.cache, metrics.New(o.cache), func(p *gang.Plugin) { o.gangs = p })(ctx, args, handle)
		},
	}
}

// attach connects the gang plugin with the scheduler as the program does. No pod
// exists yet.
func (o *own) attach(_ ktesting.TContext, s *scheduler.Scheduler, _ *perf.Workload, _ *v1.NodeList) error {
	hooks.OnFailure(s, o.gangs.Failures)
	hooks.KeepFailed(s)
	o.gangs.Lead()
	return nil
}
