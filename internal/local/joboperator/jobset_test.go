package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/webhooks"
	"sigs.k8s.io/yaml"
)

// A cluster has JobSet's webhook, which the local platform lacks. It takes the JobSets that the provider writes,
// whose fields it knows, and lets labels of pods change while one is suspended.
func TestWebhookTakesJobSetsOfTheProvider(t *testing.T) {
	for _, name := range []string{"jobset", "jobset-gang"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "job", "testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			set := &jobset.JobSet{}
			if err := yaml.UnmarshalStrict(text, set); err != nil {
				t.Fatal(err)
			}
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
			change := func(suspended bool) error {
				before, after := set.DeepCopy(), set.DeepCopy()
				before.Spec.Suspend, after.Spec.Suspend = &suspended, &suspended
				for i := range after.Spec.ReplicatedJobs {
					after.Spec.ReplicatedJobs[i].Template.Spec.Template.Labels["team"] = "other"
				}
				_, err := hook.ValidateUpdate(context.Background(), before, after)
				return err
			}
			if err := change(true); err != nil {
				t.Errorf("labels of a suspended JobSet: %v", err)
			}
			if change(false) == nil {
				t.Error("labels of pods that run can be changed: write them in place")
			}
		})
	}
}

// fill writes into a JobSet what the API server does, by the defaults of its CRD.
func fill(set *jobset.JobSet) {
	for i := range set.Spec.ReplicatedJobs {
		set.Spec.ReplicatedJobs[i].GroupName = "default"
	}
}
