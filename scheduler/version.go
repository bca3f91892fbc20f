package main

import (
	"fmt"
	"strconv"
	"strings"

	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
)

// oldestMinor is the oldest API server that a kube-scheduler of this version can work
// with: it reads resource.k8s.io/v1, which came with Kubernetes 1.34.
const oldestMinor = 34

// checkVersion refuses an API server that is too old, where the scheduler would wait for
// ever. One that cannot be asked is not refused.
func checkVersion(server discovery.ServerVersionInterface) error {
	info, err := server.ServerVersion()
	if err != nil {
		klog.Background().Error(err, "Cannot ask the API server for its version")
		info = &kubeversion.Info{}
	}
	if minor := minorOf(info); minor != 0 && minor < oldestMinor {
		return fmt.Errorf("the API server behaves like Kubernetes 1.%d; this scheduler needs 1.%d or later", minor, oldestMinor)
	}
	return nil
}

// minorOf is the minor version that an API server behaves like, 0 when it does not say.
func minorOf(info *kubeversion.Info) int {
	text := info.EmulationMinor
	if text == "" {
		text = info.Minor
	}
	minor, err := strconv.Atoi(strings.TrimRight(text, "+"))
	if err != nil || info.Major != "1" {
		return 0
	}
	return minor
}
