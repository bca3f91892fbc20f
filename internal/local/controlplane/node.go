package controlplane

import (
	"net"
	"os"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/pki"
)

// NodeFiles are what a kubelet needs to talk with the API server.
type NodeFiles struct {
	// Kubeconfig identifies the node.
	Kubeconfig string
	// Serving is the certificate with which its kubelet serves the API server.
	Serving pki.Pair
	// CAFile is the authority of the API server's own certificate.
	CAFile string
}

// NodeFiles makes the files of a node at an address; the kubeconfig is written to file.
func (c *ControlPlane) NodeFiles(node string, address net.IP, file string) (NodeFiles, error) {
	client, err := c.authority.Ensure("node-"+node, pki.Subject{CommonName: "system:node:" + node, Organization: "system:nodes"})
	if err != nil {
		return NodeFiles{}, err
	}
	// A node may have another address at the next start.
	serving, err := c.authority.Ensure("kubelet-"+address.String(), pki.Subject{CommonName: "system:node:" + node, IPs: []net.IP{address}})
	if err != nil {
		return NodeFiles{}, err
	}
	kubeconfig, err := c.authority.Kubeconfig("gpuplan-"+c.options.Name, c.URL(), client)
	if err != nil {
		return NodeFiles{}, err
	}
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		return NodeFiles{}, err
	}
	return NodeFiles{Kubeconfig: file, Serving: serving, CAFile: c.authority.CAFile()}, nil
}
