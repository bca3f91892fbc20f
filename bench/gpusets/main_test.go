package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The constants are the peer's own: its names say which they are.
func TestLinkTypes(t *testing.T) {
	for path, want := range map[string]string{
		"SYS": "P2PLinkCrossCPU", "NODE": "P2PLinkSameCPU", "PHB": "P2PLinkHostBridge", "PXB": "P2PLinkMultiSwitch", "PIX": "P2PLinkSingleSwitch",
	} {
		if got := pcieLink(nil, path).Type.String(); got != want {
			t.Errorf("%s is %s: want %s", path, got, want)
		}
	}
	for count, want := range map[int]string{1: "SingleNVLINKLink", 12: "TwelveNVLINKLinks", 18: "EighteenNVLINKLinks"} {
		if got := nvLink(nil, count).Type.String(); got != want {
			t.Errorf("%d NVLinks are %s: want %s", count, got, want)
		}
	}
}

func TestComparison(t *testing.T) {
	write := func(name, content string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	machine := write("machine.json", `{"gpus": [{"numa": 0}, {"numa": 0}, {"numa": 1}],
		"links": [["X", "NV2", "SYS"], ["NV2", "X", "SYS"], ["SYS", "SYS", "X"]]}`)
	answers := write("answers.jsonl", `
		{"free": [0], "k": 1, "gpus": [0], "gbps": 0}
		{"free": [1], "k": 1, "gpus": [1], "gbps": 0}
		{"free": [2], "k": 1, "gpus": [2], "gbps": 0}
		{"free": [0,1], "k": 1, "gpus": [0], "gbps": 0}
		{"free": [0,1], "k": 2, "gpus": [0,1], "gbps": 50}
		{"free": [0,2], "k": 1, "gpus": [0], "gbps": 0}
		{"free": [0,2], "k": 2, "gpus": [0,2], "gbps": 5}
		{"free": [1,2], "k": 1, "gpus": [1], "gbps": 0}
		{"free": [1,2], "k": 2, "gpus": [1,2], "gbps": 5}
		{"free": [0,1,2], "k": 1, "gpus": [2], "gbps": 0}
		{"free": [0,1,2], "k": 2, "gpus": [0,1], "gbps": 50}
		{"free": [0,1,2], "k": 3, "gpus": [0,1,2], "gbps": 5}`)
	var out strings.Builder
	if err := run([]string{machine, answers}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"   2        4                  0.0 %             27.5             27.5\n",
		"over 3 sequences",
		"ours 33.3\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}
