package nodeagent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/healthcheck"
)

// loadCheck reads a configuration whose only service has this check.
func loadCheck(t *testing.T, yaml string) (*healthcheck.Config, error) {
	t.Helper()
	cfg, err := load(t, "services: [{name: a, command: {argv: [cat]}, check: "+yaml+"}]", "FREESLOT_NODE__ID=n1")
	if err != nil {
		return nil, err
	}
	return cfg.Services[0].Check, nil
}

func TestCheckDefaults(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]healthcheck.Config{
		"{http: {url: 'http://a/healthz'}}": {
			HTTP: &healthcheck.HTTP{URL: "http://a/healthz", MinStatus: 200, MaxStatus: 299}, Interval: 5 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3,
		},
		// The timeout's default fits a shorter interval.
		"{tcp: {address: 'a:1'}, interval: 1s}": {
			TCP: &healthcheck.TCP{Address: "a:1"}, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
		},
		"{grpc: {address: '[::1]:1', tls: {}}, timeout: 1s, rise: 1, fall: 100}": {
			GRPC: &healthcheck.GRPC{Address: "[::1]:1", TLS: &healthcheck.TLS{}}, Interval: 5 * time.Second, Timeout: time.Second, Rise: 1, Fall: 100,
		},
		"{websocket: {url: 'wss://a', ping: true, headers: {Authorization: x}, tls: {server_name: b}}}": {
			WebSocket: &healthcheck.WebSocket{URL: "wss://a", Ping: true, Headers: map[string]string{"Authorization": "x"}, TLS: &healthcheck.TLS{ServerName: "b"}},
			Interval:  5 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3,
		},
	} {
		got, err := loadCheck(t, yaml)
		if err != nil {
			t.Errorf("%s: %v; want no error", yaml, err)
			continue
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf(`%s: %s; want diff == ""`, yaml, diff)
		}
	}
}

// pemFile has one self-made certificate, or its key.
func pemFile(t *testing.T, key bool) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	block := &pem.Block{Type: "CERTIFICATE"}
	if block.Bytes, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private); err == nil && key {
		block.Type = "PRIVATE KEY"
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(private)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestCheckRefused: every problem of a check is reported, all at once and with these words.
func TestCheckRefused(t *testing.T) {
	t.Parallel()
	const (
		urlForm = " is not a URL that can be checked, expected one such as "
		hostURL = "http: {url: 'http://a'}"
	)
	cert, key := pemFile(t, false), pemFile(t, true)
	for yaml, want := range map[string][]string{
		"{}":         {" does not say what to check, expected http, tcp, grpc or websocket"},
		"{rise: -1}": {" does not say what to check, expected http, tcp, grpc or websocket", ".rise is -1, expected 1 to 100"},
		"{htp: {}}":  {".htp is not a key of the configuration, expected http, tcp, grpc, websocket, interval, timeout, rise or fall"},
		"{" + hostURL + ", tcp: {address: 'a:1'}, websocket: {url: 'ws://a'}}": {".tcp is set beside http, expected one of them", ".websocket is set beside http, expected one of them"},
		"{http: {}}":                                                                         {".http.url" + urlForm + "http://127.0.0.1:8000/healthz"},
		"{http: {url: 'ws://user:hidden@a'}}":                                                {".http.url" + urlForm + "http://127.0.0.1:8000/healthz"},
		"{websocket: {url: 'http://a'}}":                                                     {".websocket.url" + urlForm + "ws://127.0.0.1:8000/stream"},
		"{tcp: {address: localhost}}":                                                        {`.tcp.address is "localhost", expected host:port such as 127.0.0.1:9000`},
		"{tcp: {address: 'a:http'}}":                                                         {`.tcp.address is "a:http", expected host:port such as 127.0.0.1:9000`},
		"{tcp: {address: ':80'}}":                                                            {`.tcp.address is ":80", expected host:port such as 127.0.0.1:9000`},
		"{grpc: {address: 'a:0', service: a b}}":                                             {`.grpc.address is "a:0", expected host:port such as 127.0.0.1:9000`, `.grpc.service is "a b", expected the name of a gRPC service such as speech.v1.Recognizer`},
		"{" + hostURL + ", interval: 1ms}":                                                   {".interval is 1ms, expected 100ms to 1h"},
		"{" + hostURL + ", timeout: 6s}":                                                     {".timeout is 6s, expected 1ms to 5s"},
		"{" + hostURL + ", timeout: -1s}":                                                    {".timeout is -1s, expected 1ms to 5s"},
		"{" + hostURL + ", rise: 101, fall: -2}":                                             {".fall is -2, expected 1 to 100", ".rise is 101, expected 1 to 100"},
		"{" + hostURL + ", fall: many}":                                                      {`.fall is "many", expected a whole number`},
		"{http: {url: 'http://a', min_status: 1}}":                                           {".http.min_status is 1, expected 100 to 599"},
		"{http: {url: 'http://a', min_status: 301}}":                                         {".http.max_status is 299, expected 301 to 599"},
		"{http: {url: 'http://a', headers: {'a b': hidden}}}":                                {`.http.headers has "a b", which cannot be sent as a header`},
		"{websocket: {url: 'ws://a', headers: {upgrade: hidden}}}":                           {`.websocket.headers has "upgrade", which cannot be sent as a header`},
		"{http: {url: 'http://a', body_contains: " + strings.Repeat("x", 1025) + "}}":        {".http.body_contains has 1025 bytes, expected at most 1024"},
		"{http: {url: 'http://a', tls: {}}}":                                                 {".http.tls is set, but the url does not begin with https://"},
		"{websocket: {url: 'ws://a', tls: {}}}":                                              {".websocket.tls is set, but the url does not begin with wss://"},
		"{grpc: {address: 'a:1', tls: {ca_file: /nowhere}}}":                                 {`.grpc.tls.ca_file is "/nowhere", which cannot be read: no such file or directory`},
		"{grpc: {address: 'a:1', tls: {ca_file: " + key + "}}}":                              {`.grpc.tls.ca_file is "` + key + `", which has no certificate in PEM form`},
		"{http: {url: 'https://a', tls: {cert_file: " + cert + "}}}":                         {".http.tls.key_file is missing beside cert_file, expected both or neither"},
		"{http: {url: 'https://a', tls: {key_file: " + key + "}}}":                           {".http.tls.cert_file is missing beside key_file, expected both or neither"},
		"{http: {url: 'https://a', tls: {cert_file: " + cert + ", key_file: /nowhere}}}":     {`.http.tls.key_file is "/nowhere", which cannot be read: no such file or directory`},
		"{http: {url: 'https://a', tls: {cert_file: " + cert + ", key_file: " + key + "}}}":  {`.http.tls.cert_file is "` + cert + `", which cannot be used with key_file "` + key + `": tls: private key does not match public key`},
		"{websocket: {url: 'wss://a', tls: {server_name: b, insecure_skip_verify: true}}}":   {".websocket.tls.insecure_skip_verify is set beside server_name, which it would make meaningless, expected one of them"},
		"{grpc: {address: 'a:1', tls: {insecure_skip_verify: true, ca_file: " + cert + "}}}": {".grpc.tls.insecure_skip_verify is set beside ca_file, which it would make meaningless, expected one of them"},
		"{tcp: {address: x}, grpc: {address: y}, interval: 2h, rise: -1, http: {url: 'x://y'}}": {
			".grpc is set beside http, expected one of them", `.grpc.address is "y", expected host:port such as 127.0.0.1:9000`,
			".http.url" + urlForm + "http://127.0.0.1:8000/healthz", ".interval is 2h, expected 100ms to 1h", ".rise is -1, expected 1 to 100",
			".tcp is set beside http, expected one of them", `.tcp.address is "x", expected host:port such as 127.0.0.1:9000`,
		},
	} {
		_, err := loadCheck(t, yaml)
		if err == nil {
			t.Errorf("%s is accepted", yaml)
			continue
		}
		var got []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			line, _, _ = strings.Cut(line, " (from ")
			got = append(got, strings.TrimPrefix(line, "services[0].check"))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", yaml, diff)
		}
		if strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the message gives a secret away: %v", yaml, err)
		}
	}
}

func TestEndpointRefused(t *testing.T) {
	t.Parallel()
	_, err := load(t, "services: [{name: a, endpoint: 'http://user:hidden@a', command: {argv: [cat]}}]", "FREESLOT_NODE__ID=n1")
	const want = "services[0].endpoint is not an endpoint, expected a URL such as http://10.0.0.7:8000/run, or host:port, without a user, of at most 255 characters"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, expected %s", err, want)
	}
}
