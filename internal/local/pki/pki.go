// Package pki makes the certificates and kubeconfigs of one control plane of the
// local platform: a certificate authority, what it signs, and the key that signs
// service account tokens. Everything is kept in one directory and made only once.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certificateValidity = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is recreated.
	renewBefore = 30 * 24 * time.Hour
	// backdated is by how much the clock of who is to take a certificate may be behind.
	backdated = time.Hour
)

// Authority signs certificates and keeps them in a directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair names the files of a certificate and of its private key.
type Pair struct {
	CertFile, KeyFile string
}

// Subject is whom a certificate is for. A certificate with names or addresses
// serves, one without identifies a client.
type Subject struct {
	CommonName   string
	Organization string
	DNSNames     []string
	IPs          []net.IP
}

// Open reads the authority in dir, and makes it on first use. The directory is
// readable by its owner only.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for certificates: %w", err)
	}
	a := &Authority{dir: dir}
	pair := a.pair("ca")
	var err error
	a.cert, a.key, err = read(pair)
	if errors.Is(err, fs.ErrNotExist) {
		a.cert, a.key, err = a.create()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

// CAFile names the file with the authority's certificate.
func (a *Authority) CAFile() string { return a.pair("ca").CertFile }

// Ensure returns the certificate of that name, and makes it when it is missing,
// was signed by another authority, or ends within 30 days.
func (a *Authority) Ensure(name string, subject Subject) (Pair, error) {
	pair := a.pair(name)
	there, _, err := read(pair)
	if err == nil && there.CheckSignatureFrom(a.cert) == nil && time.Until(there.NotAfter) > renewBefore {
		return pair, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Pair{}, fmt.Errorf("certificate %q: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key for %q: %w", name, err)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: subject.CommonName},
		DNSNames:    subject.DNSNames,
		IPAddresses: subject.IPs,
		NotAfter:    time.Now().Add(certificateValidity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if subject.Organization != "" {
		template.Subject.Organization = []string{subject.Organization}
	}
	if len(subject.DNSNames)+len(subject.IPs) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	if err := sign(pair, template, a.cert, key, a.key); err != nil {
		return Pair{}, fmt.Errorf("certificate %q: %w", name, err)
	}
	return pair, nil
}

// EnsureSigningKey returns the key pair that signs and verifies service account
// tokens: KeyFile is the private key, CertFile the public key.
func (a *Authority) EnsureSigningKey() (Pair, error) {
	pair := Pair{CertFile: filepath.Join(a.dir, "service-account.pub"), KeyFile: filepath.Join(a.dir, "service-account.key")}
	if _, err := os.Stat(pair.CertFile); err == nil {
		return pair, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key for service account tokens: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode the key for service account tokens: %w", err)
	}
	if err := writeKey(pair.KeyFile, key); err != nil {
		return Pair{}, err
	}
	return pair, os.WriteFile(pair.CertFile, pem.EncodeToMemory(&pem.Block{Type: keyutil.PublicKeyBlockType, Bytes: public}), 0o600)
}

// Kubeconfig returns a kubeconfig that identifies by the certificate and that
// stays valid when it is copied elsewhere.
func (a *Authority) Kubeconfig(cluster, serverURL string, client Pair) ([]byte, error) {
	ca, err := os.ReadFile(a.CAFile())
	if err != nil {
		return nil, err
	}
	certificate, err := os.ReadFile(client.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(client.KeyFile)
	if err != nil {
		return nil, err
	}
	config := api.NewConfig()
	config.Clusters[cluster] = &api.Cluster{Server: serverURL, CertificateAuthorityData: ca}
	config.AuthInfos[cluster] = &api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[cluster] = &api.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}

func (a *Authority) pair(name string) Pair {
	return Pair{CertFile: filepath.Join(a.dir, name+".crt"), KeyFile: filepath.Join(a.dir, name+".key")}
}

func (a *Authority) create() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "gpuplan-local", NotBefore: time.Now().Add(-backdated)}, key)
	if err != nil {
		return nil, nil, err
	}
	return authority, key, write(a.pair("ca"), authority, key)
}

func sign(pair Pair, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-backdated)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return err
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	return write(pair, signed, key)
}

// write writes the certificate last: where it exists, the key does too.
func write(pair Pair, certificate *x509.Certificate, key *ecdsa.PrivateKey) error {
	if err := writeKey(pair.KeyFile, key); err != nil {
		return err
	}
	encoded, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return err
	}
	return os.WriteFile(pair.CertFile, encoded, 0o600)
}

func read(pair Pair) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificates, err := cert.CertsFromFile(pair.CertFile)
	if err != nil {
		return nil, nil, broken(err)
	}
	found, err := keyutil.PrivateKeyFromFile(pair.KeyFile)
	if err != nil {
		return nil, nil, broken(err)
	}
	key, ok := found.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, broken(fmt.Errorf("%s holds another kind of key than an elliptic curve's", pair.KeyFile))
	}
	return certificates[0], key, nil
}

// broken says what to do about a file that exists and cannot be used.
func broken(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w; delete it to have it made again", err)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return keyutil.WriteKey(file, encoded)
}
