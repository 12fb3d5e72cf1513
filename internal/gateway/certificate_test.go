package gateway

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/certtest"
)

// TestCertificateOfToken: a line that names a certificate needs it at the handshake, for results by
// HTTP and, after a change of the file, for sessions that are open.
func TestCertificateOfToken(t *testing.T) {
	t.Parallel()
	s := serve(t, 100)
	authority, dir := certtest.NewAuthority(t), t.TempDir()
	certificate := func(name string) []tls.Certificate {
		if name == "" {
			return nil
		}
		cert, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
		authority.Write(t, cert, key, name)
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{pair}
	}
	web := httptest.NewUnstartedServer(s.Handler)
	web.TLS = &tls.Config{
		Certificates: certificate("server"), MinVersion: tls.VersionTLS12,
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: authority.Pool(),
	}
	web.StartTLS()
	t.Cleanup(web.Close)
	dial := func(token, name string) (*peer, *http.Response, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: authority.Pool(), Certificates: certificate(name), MinVersion: tls.VersionTLS12,
		}}
		t.Cleanup(transport.CloseIdleConnections)
		conn, resp, err := websocket.Dial(t.Context(), web.URL+frame.Path, &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{frame.Protocol},
			HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
		})
		if err != nil {
			return nil, resp, err
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return &peer{t: t, conn: conn}, resp, nil
	}
	write := func(line string) {
		t.Helper()
		changed := s.cfg.Tokens.Changed()
		s.writeTokens(line)
		<-changed
	}
	write("{name: gpu, nodes: [gpu-*], certificate: gpu-7}")
	for name, want := range map[string]string{
		"gpu-7": "", "gpu-8": `the agent's is for \"gpu-8\"`, "": "none came that gateway.tls.client_ca_file",
	} {
		_, resp, err := dial("gpu", name)
		if (err == nil) != (want == "") {
			t.Errorf("the certificate %q gives %v; want an error: %v", name, err, want != "")
		}
		if err == nil || want == "" {
			continue
		}
		body := make([]byte, 1024)
		n, _ := resp.Body.Read(body)
		if text := string(body[:n]); resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "permission_denied") || !strings.Contains(text, want) {
			t.Errorf("the certificate %q gives %d %s; want permission_denied with %q", name, resp.StatusCode, text, want)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+frame.CompletePath, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer gpu")
	resp, err := web.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a result by HTTP without the certificate gives %d; want 403", resp.StatusCode)
	}

	// An alternative name does as well as the subject.
	write("{name: gpu, nodes: [gpu-*], certificate: 127.0.*}")
	p, _, err := dial("gpu", "gpu-7")
	if err != nil {
		t.Fatal(err)
	}
	p.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":1,"version":"0.4"}`)
	p.welcomed()
	write("{name: gpu, nodes: [gpu-*], certificate: gpu-9}")
	p.expect(`{"type":"error","code":"permission_denied",…and its certificate"}`)
	p.ends(frame.CloseRights)
}
