// Package cloud serves the emulator of the Container Service API on the local
// platform: what its node pools contain becomes simulated nodes of the cluster.
package cloud

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acsfake"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/local/datadir"
)

const (
	// ClusterID is that of the platform's cluster where it is no member of a fleet, RegionID that of all clusters.
	ClusterID = "c-gpuplan-local"
	RegionID  = "cn-hangzhou"

	// taskDuration makes tasks take long enough to be seen.
	taskDuration = 2 * time.Second
)

// Options say where the emulator finds and keeps things.
type Options struct {
	// ClusterID is that of the cluster that the emulator knows.
	ClusterID string
	// Config is the administrator's access to the cluster that gets the nodes.
	Config *rest.Config
	// Kubeconfig is the content of the kubeconfig that users get from the emulator.
	Kubeconfig string
	// Listener is where the API is served.
	Listener net.Listener
	// Dir keeps the emulator's state and its credentials.
	Dir string
	// Hardware is the folder that gets a description of each node's GPUs.
	Hardware string
	// Real makes nodes that are real; nil where all are simulated.
	Real RealNodes
	// Log is the file for one line per request.
	Log string
	// KubernetesVersion is that of the cluster.
	KubernetesVersion string
}

// Cloud is the running emulator.
type Cloud struct {
	emulator *acsfake.Server
	server   *http.Server
	served   chan struct{}
	cancel   context.CancelFunc
	log      *os.File
}

// Start serves the emulator with the state that it had before.
func Start(ctx context.Context, options Options) (*Cloud, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cloud's directory: %w", err)
	}
	credentials, err := ensureCredentials(options.Dir)
	if err != nil {
		return nil, err
	}
	stateFile := filepath.Join(options.Dir, "state.json")
	state, err := readState(stateFile)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(options.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	if err := followModes(ctx, runCtx, client); err != nil {
		cancel()
		log.Close()
		return nil, err
	}
	backend := &nodes{client: client, hardware: options.Hardware, real: options.Real}
	if state != nil {
		backend.observe(*state)
	}
	emulator, err := acsfake.New(acsfake.Options{
		ClusterID:         options.ClusterID,
		Region:            RegionID,
		KubernetesVersion: options.KubernetesVersion,
		AccessKeyID:       credentials.AccessKeyID,
		AccessKeySecret:   credentials.AccessKeySecret,
		Kubeconfig:        options.Kubeconfig,
		TaskDuration:      taskDuration,
		Backend:           backend,
		State:             state,
		OnChange: func(state acsfake.State) {
			backend.observe(state)
			if err := datadir.WriteJSON(stateFile, state); err != nil {
				klog.Errorf("cloud: keep the state: %v", err)
			}
		},
	})
	if err != nil {
		cancel()
		log.Close()
		return nil, err
	}
	c := &Cloud{emulator: emulator, served: make(chan struct{}), cancel: cancel, log: log}
	c.server = &http.Server{Handler: logged(slog.New(slog.NewTextHandler(log, nil)), emulator), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(c.served)
		if err := c.server.Serve(options.Listener); !errors.Is(err, http.ErrServerClosed) {
			klog.Errorf("cloud: %v", err)
		}
	}()
	return c, nil
}

// Stop ends requests and tasks. Tasks go on at the next start.
func (c *Cloud) Stop(ctx context.Context) error {
	err := c.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, c.server.Close())
	}
	<-c.served
	c.emulator.Close()
	c.cancel()
	return errors.Join(err, c.log.Close())
}

func readState(file string) (*acsfake.State, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var state acsfake.State
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &state, nil
}

// Credentials sign requests to the emulator.
type Credentials struct {
	AccessKeyID     string `json:"accessKeyID"`
	AccessKeySecret string `json:"accessKeySecret"`
}

// ReadCredentials returns the credentials that the first start made.
func ReadCredentials(dir string) (Credentials, error) {
	var c Credentials
	data, err := os.ReadFile(credentialsFile(dir))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", credentialsFile(dir), err)
	}
	return c, nil
}

func credentialsFile(dir string) string { return filepath.Join(dir, "credentials.json") }

func ensureCredentials(dir string) (Credentials, error) {
	c, err := ReadCredentials(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	c = Credentials{AccessKeyID: "LTAI" + rand.Text()[:20], AccessKeySecret: rand.Text()}
	return c, datadir.WriteJSON(credentialsFile(dir), c)
}

// logged writes one line for each request; headers, which are signed, stay out of it.
func logged(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		log.Info("request", "method", r.Method, "url", r.URL.RequestURI(), "status", answer.status, "took", time.Since(begin).Round(time.Microsecond))
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the emulator break connections.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
