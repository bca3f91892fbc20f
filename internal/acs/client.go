// Package acs is a thin client of the Alibaba Cloud Container Service API
// (product CS, version 2015-12-15): node pools, their nodes, add-ons, tasks and
// clusters.
//
// Requests are signed by the vendor's library (github.com/alibabacloud-go/darabonba-openapi)
// with its newest signature, ACS3-HMAC-SHA256; package identity finds the credentials with the
// vendor's credentials-go. The vendor's clients do not send them: that of alibaba-cloud-sdk-go takes
// no context, so that `terraform apply` could not be interrupted, is not safe for concurrent
// use, has the older signature only, and does not decode the service's own errors, whose keys
// are lower case; that of darabonba-openapi sleeps between its tries whatever becomes of the
// context, and repeats creates, which have no idempotency token, like reads.
//
// Retries: GET, PUT and DELETE are repeated after transport errors, 5xx answers and
// throttling. POST is repeated only after throttling, which refuses a request before it
// is carried out; see [Client.CreateNodePool] for an answer that got lost.
package acs

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const apiVersion = "2015-12-15"

// Config says which API to talk to and as whom.
type Config struct {
	Credentials CredentialsSource
	// Region is the region of the clusters, "cn-hangzhou". The service answers "not
	// found" for a cluster of another region.
	Region string
	// Endpoint is the base URL, or a host name, which gets https. "" means the public
	// endpoint of the region, https://cs.<region>.aliyuncs.com.
	Endpoint string
	// NoHost says what to do where the endpoint has no address; "" means to check the endpoint and the network.
	NoHost string
	// UserAgent is sent with every request.
	UserAgent string
	// Transport sends the requests; nil means one of the client's own with proxies from
	// the environment, which are never used for loopback addresses.
	Transport http.RoundTripper
	// PollInterval is the time between two looks at a task or a state; 0 means 5 s.
	PollInterval time.Duration
	// RetryDelay is the wait before the first repetition, doubled for each further one; 0 means 500 ms.
	RetryDelay time.Duration
}

// Client is safe for concurrent use.
type Client struct {
	credentials  CredentialsSource
	region       string
	base         *url.URL
	noHost       string
	userAgent    string
	http         *http.Client
	pollInterval time.Duration
	retryDelay   time.Duration
}

// requestTimeout limits one try of one call; waits for tasks are many calls.
const requestTimeout = 60 * time.Second

// New returns a client. It fails when the address is missing or malformed; it does not
// connect.
func New(cfg Config) (*Client, error) {
	base, err := baseURL(cfg.Endpoint, cfg.Region)
	if err != nil {
		return nil, err
	}
	c := &Client{
		credentials:  cfg.Credentials,
		region:       cfg.Region,
		base:         base,
		noHost:       cfg.NoHost,
		userAgent:    cfg.UserAgent,
		pollInterval: cfg.PollInterval,
		retryDelay:   cfg.RetryDelay,
	}
	transport := cfg.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 10,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		}
	}
	c.http = &http.Client{Transport: signer{cfg.Credentials, transport}, Timeout: requestTimeout}
	if c.pollInterval == 0 {
		c.pollInterval = 5 * time.Second
	}
	if c.retryDelay == 0 {
		c.retryDelay = 500 * time.Millisecond
	}
	return c, nil
}

// Region returns the region that the client talks to.
func (c *Client) Region() string { return c.region }

// Endpoint returns the base URL that the client talks to.
func (c *Client) Endpoint() string { return c.base.String() }

func baseURL(endpoint, region string) (*url.URL, error) {
	if endpoint == "" {
		if region == "" {
			return nil, errors.New("no region: set region, or ALIBABA_CLOUD_REGION_ID")
		}
		endpoint = "https://cs." + region + ".aliyuncs.com"
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := url.Parse(strings.TrimSuffix(endpoint, "/"))
	if err != nil {
		return nil, fmt.Errorf("endpoint is not a URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("endpoint %q must be a host, or a URL like https://cs.cn-hangzhou.aliyuncs.com without a path", u.Redacted())
	}
	return u, nil
}
