package main

import (
	"fmt"

	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
)

// checkVersion refuses an API server that is too old, where the scheduler would wait for
// ever. One that cannot be asked is not refused.
func checkVersion(server discovery.ServerVersionInterface) error {
	info, err := server.ServerVersion()
	if err != nil {
		klog.Background().Error(err, "Cannot ask the API server for its version")
		info = &kubeversion.Info{}
	}
	if minor := kube.Minor(info); minor != 0 && minor < contract.OldestMinor {
		return fmt.Errorf("the API server behaves like Kubernetes 1.%d; this scheduler needs 1.%d or later", minor, contract.OldestMinor)
	}
	return nil
}
