package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	kubeversion "k8s.io/apimachinery/pkg/version"
)

type server struct {
	info *kubeversion.Info
	err  error
}

func (s server) ServerVersion() (*kubeversion.Info, error) { return s.info, s.err }

func TestCheckVersion(t *testing.T) {
	for name, test := range map[string]struct {
		server server
		says   string
	}{
		"own":              {server: server{info: &kubeversion.Info{Major: "1", Minor: "36"}}},
		"oldest":           {server: server{info: &kubeversion.Info{Major: "1", Minor: "34+"}}},
		"too old":          {server: server{info: &kubeversion.Info{Major: "1", Minor: "33+"}}, says: "behaves like Kubernetes 1.33; this scheduler needs 1.34"},
		"emulates too old": {server: server{info: &kubeversion.Info{Major: "1", Minor: "36", EmulationMajor: "1", EmulationMinor: "33"}}, says: "1.33"},
		"says nothing":     {server: server{info: &kubeversion.Info{}}},
		"not there":        {server: server{err: errors.New("connection refused")}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkVersion(test.server)
			if test.says == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.says)
		})
	}
}
