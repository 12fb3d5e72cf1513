package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serveNodes makes gateways of the replicas that start from now on. One token may be any node.
func (s *system) serveNodes() {
	s.t.Helper()
	token := "fsn_" + rand.Text()
	line := fmt.Sprintf("- {name: fleet, sha256: %x, nodes: [\"*\"]}\n", sha256.Sum256([]byte(token)))
	s.gateway = map[string]any{"tokens_file": writeFile(s.t, "tokens.yaml", line)}
	s.token = writeFile(s.t, "token", token+"\n")
}

func writeFile(t *testing.T, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bothWays runs a test with agents that are connected to Redis, and with agents whose gateways are the
// replicas that the test has started before them.
func bothWays(t *testing.T, test func(t *testing.T, s *system)) {
	t.Parallel()
	for name, gateway := range map[string]bool{"direct": false, "by gateway": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			if gateway {
				s.serveNodes()
				s.byGateway = true
			}
			test(t, s)
		})
	}
}

// doors is what an agent needs as its gateway to connect to any of the replicas.
func doors(replicas ...*replica) string {
	var urls []string
	for _, r := range replicas {
		urls = append(urls, r.ws())
	}
	return strings.Join(urls, ",")
}

// via is the replica by which a node is connected; "" for none.
func (r *replica) via(node string) (string, error) {
	nodes, err := r.nodes()
	return nodes[node].Connection.Replica, err
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	file string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, cert: &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	a.file, _ = a.sign("authority")
	return a
}

// sign makes a certificate for a host's address or for any name; the first is the authority's own.
func (a *authority) sign(name string) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if a.key == nil {
		a.key, cert = key, a.cert
	}
	cert.SerialNumber, cert.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	cert.Subject.CommonName = name
	if ip := net.ParseIP(name); ip != nil {
		cert.IPAddresses = []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return writeFile(a.t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		writeFile(a.t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}
