package gates

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUnmet(t *testing.T) {
	runs := func(kubernetes, scheduler, chart string) map[string]string {
		return map[string]string{Kubernetes: kubernetes, "kube-scheduler": scheduler, "ack-ai-installer": chart}
	}
	for name, test := range map[string]struct {
		feature string
		runs    map[string]string
		unmet   []string // component and minimum
	}{
		"as the document demands":            {"core_mem", runs("1.28.3-aliyun.1", "v1.28.1-aliyun-5.6-998282b9", "1.2.0"), nil},
		"newer, with other words":            {"core_mem", runs("1.28.9-aliyun.1", "v1.28.12-aliyun-6.6.3.d9ea6ebb", "1.13.6"), nil},
		"an older scheduler":                 {"core_mem", runs("1.28.3-aliyun.1", "v1.28.1-aliyun-5.5-1", "1.2.0"), []string{"kube-scheduler v1.28.1-aliyun-5.6-998282b9"}},
		"an older one of another age":        {"core_mem", runs("1.24.6-aliyun.1", "v1.24.3-ack-1.9", "1.2.0"), []string{"kube-scheduler v1.24.3-ack-2.0"}},
		"a newer one of another age":         {"core_mem", runs("1.24.6-aliyun.1", "v1.24.6-aliyun-5.8", "1.2.0"), nil},
		"a cluster of which nothing is said": {"core_mem", runs("1.36.3-aliyun.1", "v1.28.1-aliyun-5.5-1", "1.2.0"), nil},
		"an older chart":                     {"core_mem", runs("1.36.3-aliyun.1", "", "1.1.9"), []string{"ack-ai-installer 1.2.0"}},
		"no chart":                           {"core_mem", runs("1.36.3-aliyun.1", "", ""), nil},
		"a version that says nothing":        {"core_mem", runs("1.28.3", "latest", "edge"), nil},
		"a cluster older than the scheduler": {"core_mem", runs("1.18.8-aliyun.1", "v1.18.8-aliyun-1", ""), []string{"kubernetes 1.20"}},
		"an older cluster":                   {"disabled", runs("1.32.1-aliyun.1", "", ""), []string{"kubernetes 1.34"}},
		"two at once":                        {"enable_reservation", runs("1.26.3-aliyun.1", "v1.26.3-aliyun-6.7.2.abc", ""), []string{"kubernetes 1.28", "kube-scheduler 6.8.0"}},
		"a feature without versions":         {"share", runs("1.20.4", "", "1.1.9"), nil},
		"a feature without gates":            {"mig", runs("1.20.4", "", ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var unmet []string
			for _, g := range Unmet(test.feature, test.runs) {
				unmet = append(unmet, g.Component+" "+g.Minimum)
			}
			assert.Equal(t, test.unmet, unmet)
		})
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"v1.30.3-aliyun-6.8.0.abc": "6.8.0", "v1.36.3-aliyun.1": "", "v1.28.1-aliyun-5.6-998282b9": "5.6", "v1.24.3-ack-2.0": "2.0", "1.36.3-aliyun.1": "1.36.3", "1.2.0": "1.2.0", "": "", "edge": "",
	} {
		got := ""
		if v := parse(text); v != nil {
			got = v.String()
		}
		assert.Equal(t, want, got, text)
	}
}
