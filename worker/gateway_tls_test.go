package worker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// TestGatewayTLS: the store trusts its own CA alone, checks the name, and shows its certificate. It says
// which file is bad.
func TestGatewayTLS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, "a")
	server := httptest.NewUnstartedServer(g)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := file("cert.pem", "CERTIFICATE", server.Certificate().Raw), file("key.pem", "PRIVATE KEY", key)
	good := GatewayTLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "example.com"}
	for want, change := range map[string]func(*GatewayTLS){
		"": func(*GatewayTLS) {},
		"x509: certificate signed by unknown authority": func(c *GatewayTLS) { c.CAFile = "" },
		"not example.org":           func(c *GatewayTLS) { c.ServerName = "example.org" },
		"tls: certificate required": func(c *GatewayTLS) { c.CertFile, c.KeyFile = "", "" },
		"gateway_tls.ca_file cannot be read: /nowhere: no such file":                 func(c *GatewayTLS) { c.CAFile = "/nowhere" },
		"gateway_tls.ca_file names " + keyFile + ", which has no certificate in PEM": func(c *GatewayTLS) { c.CAFile = keyFile },
		"gateway_tls.key_file cannot be read: /nowhere: no such file":                func(c *GatewayTLS) { c.KeyFile = "/nowhere" },
	} {
		cfg := Config{Gateway: "wss://" + server.Listener.Addr().String(), Token: "secret", Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, GatewayTLS: good}
		change(&cfg.GatewayTLS)
		rights, err := CheckGateway(t.Context(), cfg)
		switch {
		case want == "" && (err != nil || rights.Token != "t"):
			t.Errorf("%+v, %v", rights, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || freeslot.CodeOf(err) == freeslot.CodeInternal):
			t.Errorf("got  %v\nwant %s", err, want)
		case want != "" && isUnreachable(err):
			t.Errorf("a start would wait, expected it to fail: %v", err)
		}
	}
}
