// Package session is what a configured provider hands to each of its resources
// and data sources: the settings, the clients, which are made when first needed,
// and the ledger of the walk.
package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/kube"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/cluster"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/fleetplan"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/ledger"
)

// Check is how strictly placements are checked at plan.
type Check string

// Values of placement_check.
const (
	CheckError Check = "error"
	CheckWarn  Check = "warn"
	CheckOff   Check = "off"
)

// Checks are all values of placement_check.
func Checks() []string { return []string{string(CheckError), string(CheckWarn), string(CheckOff)} }

// Attributes of the provider.
const (
	Region            = "region"
	ClusterID         = "cluster_id"
	Endpoint          = "endpoint"
	Kubeconfig        = "kubeconfig"
	KubeconfigContent = "kubeconfig_content"
	KubeContext       = "kube_context"
	PlacementCheck    = "placement_check"
	Owner             = "owner"
)

// Attributes of the provider that say as whom it talks to the cloud; they are called as those of
// the alicloud provider.
const (
	AccessKey             = "access_key"
	SecretKey             = "secret_key"
	SecurityToken         = "security_token"
	Profile               = "profile"
	SharedCredentialsFile = "shared_credentials_file"
	CredentialsURI        = "credentials_uri"
	ECSRoleName           = "ecs_role_name"
	AssumeRole            = "assume_role"
	AssumeRoleWithOIDC    = "assume_role_with_oidc"
	STSEndpoint           = "sts_endpoint"
)

// unservedAge is how long a plan believes that the cluster does not serve a kind. Each job asks for
// the kinds of all frameworks, and a cluster serves a few of them.
const unservedAge = 10 * time.Second

// Reasons why a client cannot be made, other than a mistake in the configuration.
var (
	// ErrUnknown: the configuration holds values that are unknown until apply.
	ErrUnknown = errors.New("the provider's configuration is unknown until apply")
	// ErrNotConfigured: the configuration and the environment do not say how to connect.
	ErrNotConfigured = errors.New("the provider is not told how to connect")
)

// Settings is the provider's configuration after defaults and environment.
type Settings struct {
	Region    string
	ClusterID string
	// Endpoint of the Container Service API, "" for the region's public endpoint.
	Endpoint string
	// Identity is as whom the provider talks to the cloud.
	Identity identity.Settings
	// Kubeconfig is the path of a file, KubeconfigContent its content, which wins.
	Kubeconfig, KubeconfigContent string
	KubeContext                   string
	PlacementCheck                Check
	// Owner is the stamp of this configuration on what it creates; "" while it is unknown.
	Owner string
	// UserAgent names the provider and its version to the servers.
	UserAgent string
	// Targets means that Terraform visits a part of the configuration only.
	Targets bool
	// Applies means that this may be the walk in which Terraform carries a plan out.
	Applies bool
	// Refreshes means that Terraform takes over what there is, and changes nothing.
	Refreshes bool
	// Parallelism is how many resources Terraform visits at a time, 0 where that is not known.
	Parallelism int
	// Unknown are the attributes whose values are unknown until apply.
	Unknown []string
}

// Session is safe for concurrent use.
type Session struct {
	Settings
	Ledger *ledger.Ledger

	warned sync.Map // texts of warnings that were given once

	acs     func() (*acs.Client, error)
	service service
	kube    func() (*kube.Client, error)
	cluster func() (*cluster.Cluster, error)
	fleet   func() (*fleetplan.Fleet, error)
}

// New returns the session of one configured provider. It contacts nobody.
func New(s Settings) *Session {
	session := &Session{
		Settings: s,
		Ledger:   ledger.New(),
		acs:      sync.OnceValues(s.newACS),
		kube:     sync.OnceValues(s.newKube),
	}
	if s.Applies {
		session.Ledger.ExpectApply()
	}
	if s.Targets {
		session.Ledger.ExpectPart()
	}
	session.cluster = sync.OnceValues(func() (*cluster.Cluster, error) {
		client, err := session.kube()
		return cluster.New(client, session.Ledger.Applying), err
	})
	session.fleet = sync.OnceValues(func() (*fleetplan.Fleet, error) {
		client, err := session.kube()
		return fleetplan.New(client, session.Ledger.Applying, session.Owns), err
	})
	return session
}

// ACS returns the client of the Container Service API. The error names the attribute
// and variable to set; it wraps [ErrNotConfigured] or [ErrUnknown] when that is the reason.
func (s *Session) ACS() (*acs.Client, error) { return s.acs() }

// Kube returns the client of the cluster's Kubernetes API, with the same errors as [Session.ACS].
// Until an apply begins, what the cluster does not serve is believed for a while.
func (s *Session) Kube() (*kube.Client, error) {
	client, err := s.kube()
	if err != nil || s.Ledger.Applying() {
		return client, err
	}
	return client.Believing(unservedAge), nil
}

// Cluster returns what the walk sees of the cluster, with the same errors as [Session.ACS].
func (s *Session) Cluster() (*cluster.Cluster, error) { return s.cluster() }

// Fleet returns what the walk sees, and plans, of the fleet of which the cluster is the hub, with the same errors as [Session.ACS].
func (s *Session) Fleet() (*fleetplan.Fleet, error) { return s.fleet() }

// Snapshot returns the cluster as this walk sees it ([cluster.Cluster.Snapshot]), with the
// same errors as [Session.ACS] when there is no access to it.
func (s *Session) Snapshot(ctx context.Context) (*cluster.Snapshot, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	return c.Snapshot(ctx)
}

// ClusterUID tells the cluster from others ([cluster.Cluster.UID]), "" when it is not known.
func (s *Session) ClusterUID(ctx context.Context) types.UID {
	c, err := s.cluster()
	if err != nil {
		return ""
	}
	return c.UID(ctx)
}

// StorageClass returns a class as this walk sees it ([cluster.Cluster.StorageClass]).
func (s *Session) StorageClass(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	c, err := s.cluster()
	if err != nil {
		return nil, err
	}
	return c.StorageClass(ctx, name)
}

// ShowCluster shows the cluster to the ledger of a plan, where it can be seen: what the plan frees or adds may go to
// gangs that wait. A plan that takes something away is never refused because it cannot.
func (s *Session) ShowCluster(ctx context.Context) {
	if s.Ledger.Applying() {
		return
	}
	if snapshot, err := s.Snapshot(ctx); err == nil {
		s.Ledger.Observe(func() ledger.Live { return snapshot.Live(s.Owns) })
	}
}

// Changed makes those who look at the cluster from now on see what this walk has just changed there.
func (s *Session) Changed() {
	if c, err := s.cluster(); err == nil {
		c.Changed()
	}
}

// NotChecked reports whether err only says that a plan cannot look at live state: the
// provider is not told how to connect, or will know it at apply. The plan then goes on
// with one warning. A connection that was given and does not work is an error.
func (s *Session) NotChecked(err error, diags *diag.Diagnostics) bool {
	if errors.Is(err, ErrUnknown) {
		return true // the provider's configuration has warned already
	}
	if !errors.Is(err, ErrNotConfigured) {
		return false
	}
	if _, again := s.warned.LoadOrStore(err.Error(), true); !again {
		diags.AddWarning("Live state is not checked",
			fmt.Sprintf("What is planned in this configuration is checked, what exists is not, because %s.", err))
	}
	return true
}

// Owns reports whether an object with these labels belongs to this configuration. One that
// was created before there were stamps may.
func (s *Session) Owns(labels map[string]string) bool {
	owner, stamped := labels[contract.OwnerLabel]
	return labels[contract.ManagedByLabel] == contract.ManagedByValue && (!stamped || owner == s.Owner)
}

// unknown returns ErrUnknown when one of the attributes is unknown until apply.
func (s Settings) unknown(attributes ...string) error {
	var names []string
	for _, a := range attributes {
		if slices.Contains(s.Unknown, a) {
			names = append(names, a)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnknown, strings.Join(names, ", "))
}
