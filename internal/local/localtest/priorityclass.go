package localtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CreatePriorityClass creates a PriorityClass for the test, and waits until pods may name
// it: the admission plugin of the API server reads classes from a watch, and refuses pods
// of a class that it has not seen yet.
func CreatePriorityClass(t testing.TB, client kubernetes.Interface, class *schedulingv1.PriorityClass) {
	t.Helper()
	classes := client.SchedulingV1().PriorityClasses()
	_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{}) })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "asks-"},
		Spec: corev1.PodSpec{
			PriorityClassName: class.Name,
			Containers:        []corev1.Container{{Name: "main", Image: "test"}},
		},
	}
	require.Eventually(t, func() bool {
		_, err = client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil || !strings.Contains(err.Error(), "no PriorityClass")
	}, time.Minute, 10*time.Millisecond, "the API server knows the PriorityClass")
	require.NoError(t, err)
}
