package kube

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// Minor is the minor version of Kubernetes that an API server behaves like, 0 when it does not say.
func Minor(info *version.Info) int {
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
