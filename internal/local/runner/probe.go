package runner

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/process"
)

const (
	defaultProbePeriod  = 10 * time.Second
	defaultProbeTimeout = time.Second
	// defaultFailureThreshold is how many probes in a row must fail before what was ready is not.
	defaultFailureThreshold = 3
	// firstProbePeriod is used until a probe has succeeded for the first time.
	firstProbePeriod = 200 * time.Millisecond
)

// probe asks the running process as its readiness probe says, until it ends.
func (r *Runner) probe(w *workload, container int, probe *corev1.Probe, running *process.Process) {
	period, timeout := defaultProbePeriod, defaultProbeTimeout
	if probe.PeriodSeconds > 0 {
		period = time.Duration(probe.PeriodSeconds) * time.Second
	}
	if probe.TimeoutSeconds > 0 {
		timeout = time.Duration(probe.TimeoutSeconds) * time.Second
	}
	state := &readiness{threshold: defaultFailureThreshold}
	if probe.FailureThreshold > 0 {
		state.threshold = int(probe.FailureThreshold)
	}
	ask := prober(probe, r.addressOf(w), w.first.Spec.Containers[container].Ports)
	wait := firstProbePeriod
	for {
		select {
		case <-running.Done():
			return
		case <-time.After(wait):
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		ok := ask(ctx)
		cancel()
		if ok {
			wait = period
		}
		ready := state.after(ok)
		r.mu.Lock()
		if w.statuses[container].Running == running && w.probed[container] != ready {
			w.probed[container] = ready
			r.enqueuePods(w)
		}
		r.mu.Unlock()
	}
}

// readiness is what the probes of a process have shown so far. Like a kubelet's, one that fails
// now and then, on a busy machine for example, makes nobody unready.
type readiness struct {
	ready bool
	// failures is how many probes have failed since the last that succeeded.
	failures, threshold int
}

// after takes in whether a probe has succeeded, and reports whether the process is ready.
func (r *readiness) after(ok bool) bool {
	if ok {
		r.ready, r.failures = true, 0
		return true
	}
	r.failures++
	r.ready = r.ready && r.failures < r.threshold
	return r.ready
}

// prober returns the question that a probe asks of a process that listens on host. What
// cannot be asked of a process of this machine counts as answered.
func prober(probe *corev1.Probe, host string, ports []corev1.ContainerPort) func(context.Context) bool {
	switch {
	case probe.HTTPGet != nil:
		return func(ctx context.Context) bool { return getOK(ctx, probe.HTTPGet, host, ports) }
	case probe.TCPSocket != nil:
		return func(ctx context.Context) bool {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", address(host, probe.TCPSocket.Port, ports))
			return err == nil && connection.Close() == nil
		}
	}
	return func(context.Context) bool { return true }
}

func getOK(ctx context.Context, get *corev1.HTTPGetAction, host string, ports []corev1.ContainerPort) bool {
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address(host, get.Port, ports)+get.Path, nil)
	if err != nil {
		return false
	}
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}
	// Like a kubelet's, the probe does not check the certificate.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode >= 200 && answer.StatusCode < 400
}

// address is the address of a port that is given by number or name.
func address(host string, port intstr.IntOrString, ports []corev1.ContainerPort) string {
	number := port.IntValue()
	for _, p := range ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			number = int(p.ContainerPort)
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(number))
}
