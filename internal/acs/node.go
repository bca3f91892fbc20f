package acs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Node is one instance of a pool. Instances that have not registered with Kubernetes
// yet are not listed by the service.
type Node struct {
	InstanceID string `json:"instance_id"`
	Name       string `json:"node_name"`
	// Status is Kubernetes' view: "Ready", "NotReady", "Unknown", "Offline".
	Status string `json:"node_status"`
	// State is the instance's: "pending", "running", "starting", "stopping", "stopped".
	State        string   `json:"state"`
	InstanceType string   `json:"instance_type"`
	PoolID       string   `json:"nodepool_id"`
	IPAddress    []string `json:"ip_address"`
	CreationTime string   `json:"creation_time"`
	ErrorMessage string   `json:"error_message"`
}

// nodesPerPage is the largest page that the service allows.
const nodesPerPage = 100

// ListNodes returns all nodes of a pool.
func (c *Client) ListNodes(ctx context.Context, clusterID, poolID string) ([]Node, error) {
	var nodes []Node
	for page := 1; ; page++ {
		var answer struct {
			Nodes []Node `json:"nodes"`
			Page  struct {
				TotalCount int `json:"total_count"`
			} `json:"page"`
		}
		query := url.Values{
			"nodepool_id": {poolID},
			"state":       {"all"},
			"pageNumber":  {strconv.Itoa(page)},
			"pageSize":    {strconv.Itoa(nodesPerPage)},
		}
		if err := c.do(ctx, call{"DescribeClusterNodes", http.MethodGet, clusterPath(clusterID) + "/nodes", query, nil}, &answer); err != nil {
			return nil, err
		}
		nodes = append(nodes, answer.Nodes...)
		if len(answer.Nodes) == 0 || len(nodes) >= answer.Page.TotalCount {
			return nodes, nil
		}
	}
}

// RemoveNodes drains nodes of a pool and releases their instances, also where the pool's scaling policy is
// [ScalingPolicyRecycle]; the pool is smaller by their number then. One that is gone already is success.
func (c *Client) RemoveNodes(ctx context.Context, clusterID, poolID string, instanceIDs []string) (Started, error) {
	ids, err := json.Marshal(instanceIDs)
	if err != nil {
		return Started{}, fmt.Errorf("encode instance IDs: %w", err)
	}
	query := url.Values{"instance_ids": {string(ids)}, "drain_node": {"true"}, "release_node": {"true"}}
	var started Started
	err = c.do(ctx, call{"RemoveNodePoolNodes", http.MethodDelete, poolPath(clusterID, poolID) + "/nodes", query, nil}, &started)
	return started, err
}
