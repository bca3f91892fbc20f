package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/webhooks"
	"sigs.k8s.io/yaml"
)

// Kubeflow Trainer knows the fields of the TrainJobs and runtimes that the provider writes, and JobSet's webhook takes
// what becomes of them.
func TestTrainerTakesTrainJobsOfTheProvider(t *testing.T) {
	for _, name := range []string{"trainjob", "trainjob-gang"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "job", "testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			whole := struct {
				trainer.TrainJob `json:",inline"`
				// Template is the runtime's, which is an object of its own in a cluster.
				Template trainer.JobSetTemplateSpec `json:"runtimeTemplate"`
			}{}
			if err := yaml.UnmarshalStrict(text, &whole); err != nil {
				t.Fatal(err)
			}
			if kind := whole.Spec.RuntimeRef.Kind; kind == nil || *kind != trainer.TrainingRuntimeKind {
				t.Error("it refers to another kind of runtime")
			}
			set := &jobset.JobSet{ObjectMeta: whole.ObjectMeta, Spec: whole.Template.Spec}
			fill(set)
			hook, err := webhooks.NewJobSetWebhook(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := hook.Default(context.Background(), set); err != nil {
				t.Fatal(err)
			}
			if _, err := hook.ValidateCreate(context.Background(), set); err != nil {
				t.Fatal(err)
			}
		})
	}
}
