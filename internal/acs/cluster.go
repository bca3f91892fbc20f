package acs

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Cluster is what the service says of a cluster.
type Cluster struct {
	ID   string `json:"cluster_id"`
	Name string `json:"name"`
	// Type is [ManagedCluster], "Kubernetes" for dedicated clusters, "ExternalKubernetes" for registered ones. Spec is
	// "ack.pro.small" for Pro clusters, "ack.standard" for basic ones; clusters that are not managed may have none.
	Type     string `json:"cluster_type"`
	Profile  string `json:"profile"`
	Spec     string `json:"cluster_spec"`
	RegionID string `json:"region_id"`
	// State is "running" when the cluster takes requests.
	State string `json:"state"`
	// Version is the Kubernetes version with the vendor's suffix, "1.36.1-aliyun.1".
	Version   string `json:"current_version"`
	VPCID     string `json:"vpc_id"`
	VSwitchID string `json:"vswitch_id"`
	Size      int64  `json:"size"`
}

// ManagedCluster is the type of managed clusters.
const ManagedCluster = "ManagedKubernetes"

// ClusterRunning is the state of a cluster that takes requests.
const ClusterRunning = "running"

// GetCluster returns a cluster; [IsNotFound] means that there is none in the region.
func (c *Client) GetCluster(ctx context.Context, clusterID string) (Cluster, error) {
	var cluster Cluster
	err := c.do(ctx, call{"DescribeClusterDetail", http.MethodGet, clusterPath(clusterID), nil, nil}, &cluster)
	return cluster, err
}

// Kubeconfig is access to the Kubernetes API of a cluster for a time.
type Kubeconfig struct {
	// Config is the kubeconfig as text. It is secret.
	Config string `json:"config"`
	// Expiration is when the access ends, RFC 3339.
	Expiration string `json:"expiration"`
}

// UserKubeconfig returns a kubeconfig of the user whose access key signs, that ends after 15 to 4320
// minutes; private means the API server's address inside of the VPC.
func (c *Client) UserKubeconfig(ctx context.Context, clusterID string, minutes int64, private bool) (Kubeconfig, error) {
	query := url.Values{"TemporaryDurationMinutes": {strconv.FormatInt(minutes, 10)}, "PrivateIpAddress": {strconv.FormatBool(private)}}
	var k Kubeconfig
	err := c.do(ctx, call{"DescribeClusterUserKubeconfig", http.MethodGet, "/k8s/" + clusterID + "/user_config", query, nil}, &k)
	return k, err
}

func clusterPath(clusterID string) string { return "/clusters/" + clusterID }
