package acs

import (
	"context"
	"net/http"
)

// Cluster is what the service says of a cluster.
type Cluster struct {
	ID   string `json:"cluster_id"`
	Name string `json:"name"`
	// Type is "ManagedKubernetes" for managed clusters, Spec "ack.pro.small" for Pro ones.
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

// ClusterRunning is the state of a cluster that takes requests.
const ClusterRunning = "running"

// GetCluster returns a cluster; [IsNotFound] means that there is none in the region.
func (c *Client) GetCluster(ctx context.Context, clusterID string) (Cluster, error) {
	var cluster Cluster
	err := c.do(ctx, call{"DescribeClusterDetail", http.MethodGet, clusterPath(clusterID), nil, nil}, &cluster)
	return cluster, err
}

func clusterPath(clusterID string) string { return "/clusters/" + clusterID }
