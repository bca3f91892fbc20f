package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/cloud"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/steps"
)

func TestQuote(t *testing.T) {
	for _, word := range []string{"plain", "with space", "it's", "$HOME `x` \"y\" \\"} {
		output, err := exec.Command("/bin/sh", "-c", "printf %s "+quote(word)).Output()
		require.NoError(t, err)
		assert.Equal(t, word, string(output))
	}
}

func TestProgressShowsTheFirstFailure(t *testing.T) {
	log := filepath.Join(t.TempDir(), "etcd.log")
	require.NoError(t, os.WriteFile(log, []byte("one\ntwo\n"), 0o600))
	var shown bytes.Buffer
	p := newProgress(&shown)
	for _, event := range []steps.Event{
		{Step: "certificates"}, {Step: "certificates", Done: true, Seconds: 0.25},
		{Note: "port 1 is taken"},
		{Step: "etcd"}, {Step: "etcd", Done: true, Seconds: 2, Error: "no space left", Log: log},
		{Step: "scheduler", Done: true, Error: "context canceled"},
	} {
		p.show(event)
	}
	assert.Equal(t, ""+
		"  certificates                 0.2 s\n"+
		"  note: port 1 is taken\n"+
		"  etcd                       failed after 2.0 s\n", shown.String())
	assert.EqualError(t, p.failure("server.log"), "etcd: no space left\nThe end of its log ("+log+"):\n  one\n  two")
	assert.False(t, p.ready)

	shown.Reset()
	p.show(steps.Event{Step: "cloud API"})
	p.remind(time.Now())
	assert.Empty(t, shown.String())
	p.remind(time.Now().Add(20 * time.Second))
	assert.Equal(t, "  cloud API                  still starting after 20 s\n", shown.String())
	p.show(steps.Event{Ready: true})
	assert.True(t, p.ready)
	assert.ErrorContains(t, newProgress(&shown).failure(log), "two", "a server that died without a word")
}

// Each process has a line of its own.
func TestProcessStatus(t *testing.T) {
	assert.Equal(t, " 806 MiB   kube-apiserver (process 12)", processStatus{Name: "kube-apiserver", PID: 12, MemoryBytes: 806 << 20}.String())
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	tests := map[string]struct {
		args      []string
		code      int
		out, errs []string
	}{
		"nothing":             {args: nil, out: []string{"runs an ACK-like platform", "up ", "status ", "env ", "kubeconfig ", "down ", "--data-dir folder"}},
		"help":                {args: []string{"help"}, out: []string{"runs an ACK-like platform"}},
		"help of a command":   {args: []string{"up", "-h"}, out: []string{"--kube-apiserver program", "--detach", "--port port"}},
		"no such command":     {args: []string{"fly"}, code: 2, errs: []string{`gpuplan-local: there is no command "fly"`, "kubeconfig "}},
		"no such flag":        {args: []string{"down", "--purged"}, code: 2, errs: []string{"gpuplan-local down: unknown flag: --purged", "--purge "}},
		"a word for a number": {args: []string{"up", "--port", "1x"}, code: 2, errs: []string{`gpuplan-local up: --port wants a number, and "1x" is none`}},
		"no such port":        {args: []string{"up", "--cloud-port", "65536"}, code: 2, errs: []string{"gpuplan-local up: --cloud-port is 65536: a port is between 1 and 65535"}},
		"less than no node":   {args: []string{"up", "--real-nodes", "-1"}, code: 2, errs: []string{"gpuplan-local up: --real-nodes is -1: there can be 0 to 32"}},
		"too many nodes":      {args: []string{"up", "--real-nodes", "33"}, code: 2, errs: []string{"--real-nodes is 33"}},
		"too many members":    {args: []string{"up", "--members", "9"}, code: 2, errs: []string{"--members is 9: there can be 0 to 8"}},
		"real nodes":          {args: []string{"up", "--members", "1", "--real-nodes", "1"}, code: 2, errs: []string{"leave out --real-nodes and --cloud-port"}},
		"all and one":         {args: []string{"env", "--variables", "--cluster", "hub", "--data-dir", dir}, code: 2, errs: []string{"leave out --cluster"}},
		"no fleet":            {args: []string{"env", "--cluster", "hub", "--data-dir", dir}, code: 1, errs: []string{"never started"}},
		"no such version":     {args: []string{"up", "--emulated-version", "1.32"}, code: 2, errs: []string{`gpuplan-local up: --emulated-version is "1.32": there are 1.36, 1.35, 1.34, 1.33`}},
		"too deep":            {args: []string{"up", "--real-nodes", "1", "--data-dir", filepath.Join(dir, strings.Repeat("deep/", 20))}, code: 1, errs: []string{"too long for the sockets of real nodes"}},
		"version":             {args: []string{"--version"}, out: []string{"gpuplan-local version dev"}},
		"an argument":         {args: []string{"down", "now"}, code: 2, errs: []string{`gpuplan-local down: unexpected argument "now"`}},
		"no such format":      {args: []string{"status", "-o", "xml", "--data-dir", dir}, code: 1, errs: []string{"gpuplan-local: ", `no output format "xml"`}},
		"a file":              {args: []string{"status", "--data-dir", file}, code: 1, errs: []string{"gpuplan-local: " + file + " is a file: name a folder with --data-dir"}},
		"not running":         {args: []string{"--data-dir", dir, "down"}, out: []string{"not running"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			assert.Equal(t, test.code, run(t.Context(), test.args, &out, &errs))
			for _, want := range test.out {
				assert.Contains(t, out.String(), want)
			}
			for _, want := range test.errs {
				assert.Contains(t, errs.String(), want)
			}
			assert.Equal(t, test.code == 0, errs.Len() == 0, "%s", errs.String())
			for _, hidden := range []string{serveCommand, "completion"} {
				assert.NotContains(t, out.String()+errs.String(), "\n  "+hidden+" ")
			}
			assert.NotContains(t, out.String()+errs.String(), "--version version", "the flag of a library")
		})
	}
}

// Of which cluster the environment is, by what the platform wrote down.
func TestClusters(t *testing.T) {
	hub := datadir.Cluster{Name: datadir.HubCluster, Kubeconfig: "/hub"}
	member := datadir.Cluster{Name: datadir.MemberCluster(1), Kubeconfig: "/member"}
	only := datadir.Cluster{Name: datadir.MainCluster, Kubeconfig: "/main"}
	for _, test := range []struct {
		clusters     []datadir.Cluster
		name         string
		want, errors string
	}{
		{clusters: []datadir.Cluster{only}, want: "/main"},
		{clusters: []datadir.Cluster{only}, name: "main", want: "/main"},
		{clusters: []datadir.Cluster{hub, member}, want: "/hub"},
		{clusters: []datadir.Cluster{hub, member}, name: "member-1", want: "/member"},
		{clusters: []datadir.Cluster{hub, member}, name: "main", errors: `there is no cluster "main"; there are hub, member-1`},
		{name: "hub", errors: "never started"},
	} {
		dir := datadir.Dir(t.TempDir())
		require.NoError(t, dir.WriteState(datadir.State{Clusters: test.clusters}))
		var shown bytes.Buffer
		err := kubeconfig(&shown, dir, test.name)
		if test.errors != "" {
			require.ErrorContains(t, err, test.errors)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, test.want+"\n", shown.String())
	}

	dir := datadir.Dir(t.TempDir())
	require.NoError(t, dir.WriteState(datadir.State{Clusters: []datadir.Cluster{hub, member}}))
	var shown bytes.Buffer
	require.NoError(t, env(&shown, dir, ""))
	assert.Equal(t, "export KUBECONFIG='/hub'\n", shown.String(), "a hub has no cloud")
}

// Terraform gets the settings for all clusters of a fleet at once, by the names that the example has.
func TestVariables(t *testing.T) {
	hub := datadir.Cluster{Name: datadir.HubCluster, Kubeconfig: "/hub"}
	start := func(t *testing.T, clusters ...datadir.Cluster) datadir.Dir {
		t.Helper()
		dir := datadir.Dir(t.TempDir())
		require.NoError(t, dir.WriteState(datadir.State{Clusters: clusters}))
		return dir
	}
	var members []datadir.Cluster
	for number := 1; number <= 2; number++ {
		name := datadir.MemberCluster(number)
		members = append(members, datadir.Cluster{Name: name, Kubeconfig: "/" + name})
	}
	dir := start(t, append([]datadir.Cluster{hub}, members...)...)
	for number, member := range members {
		inside := dir.Member(member.Name)
		require.NoError(t, os.MkdirAll(inside.Cloud(), 0o700))
		id := strconv.Itoa(number + 1)
		require.NoError(t, inside.WriteState(datadir.State{Cloud: datadir.Cloud{URL: "http://cloud-" + id, ClusterID: "c-" + id, RegionID: "cn-" + id}}))
		require.NoError(t, datadir.WriteJSON(filepath.Join(inside.Cloud(), "credentials.json"), cloud.Credentials{AccessKeyID: "key-" + id, AccessKeySecret: "secret-" + id}))
	}
	var shown bytes.Buffer
	require.NoError(t, variables(&shown, dir))
	assert.JSONEq(t, `{
		"hub": {"kubeconfig": "/hub"},
		"clusters": {
			"member-1": {"kubeconfig": "/member-1", "cluster_id": "c-1", "region": "cn-1", "endpoint": "http://cloud-1", "access_key": "key-1", "secret_key": "secret-1"},
			"member-2": {"kubeconfig": "/member-2", "cluster_id": "c-2", "region": "cn-2", "endpoint": "http://cloud-2", "access_key": "key-2", "secret_key": "secret-2"}
		}
	}`, shown.String())

	example, err := os.ReadFile("../../examples/fleet/main.tf")
	require.NoError(t, err)
	for _, declared := range []string{`variable "hub"`, `variable "clusters"`, "kubeconfig", "cluster_id", "region", "endpoint", "access_key", "secret_key"} {
		assert.Contains(t, string(example), declared)
	}

	require.ErrorContains(t, variables(&shown, start(t, datadir.Cluster{Name: datadir.MainCluster})), "is no fleet: leave out --variables")
	require.ErrorContains(t, variables(&shown, start(t)), "never started")
	require.ErrorContains(t, variables(&shown, start(t, hub, datadir.Cluster{Name: "member-1"})), "member-1")
}

func TestServerOfMember(t *testing.T) {
	options := upOptions{programs: "/bin", port: 7, members: 2, trainer: true, emulated: "1.34"}
	var of upOptions
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	of.register(flags)
	flags.String("data-dir", "", "")
	flags.String(memberFlag, "", "")
	require.NoError(t, flags.Parse(options.serveMember("/data", "member-1")))
	assert.Equal(t, upOptions{programs: "/bin", trainer: true, emulated: "1.34"}, of)
}

func TestStatusOfFleet(t *testing.T) {
	r := report{
		DataDir: "/data", Kubeconfig: "/hub",
		State: datadir.State{Version: "v1.36.3", Clusters: []datadir.Cluster{
			{Name: "hub", URL: "https://h", Kubeconfig: "/hub"}, {Name: "member-1", URL: "https://1", Kubeconfig: "/1"}, {Name: "member-2", URL: "https://2", Kubeconfig: "/2"},
		}},
		Members: []memberReport{
			{Name: "member-1", Joined: true, Version: "v1.36.3", URL: "https://1", Cloud: datadir.Cloud{URL: "http://c", ClusterID: "c-1"}, Nodes: &simulationCount{Total: 3, Ready: 2, Pods: 5}},
			{Name: "member-2", Version: "v1.35.9", URL: "https://2", Problem: "the hub does not reach it: cluster is not reachable"},
		},
	}
	var shown bytes.Buffer
	r.printFleet(&shown)
	for _, want := range []string{
		"  hub        Kubernetes v1.36.3  https://h  (kubeconfig /hub)\n" +
			"  member-1   Kubernetes v1.36.3  https://1  (kubeconfig /1)\n" +
			"             cloud API http://c (cluster c-1); 3 nodes, of which 2 are ready; 5 pods\n" +
			"  member-2   Kubernetes v1.35.9  https://2  (kubeconfig /2)\n" +
			"             problem: the hub does not reach it: cluster is not reachable\n",
		"--data-dir '/data' --cluster member-1",
	} {
		assert.Contains(t, shown.String(), want)
	}
}
