package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/testing/certtest"
)

func TestGatewayRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, "a")
	_, other := writeCertificate(t, dir, "b")
	tokens := filepath.Join(dir, "tokens.yaml")
	if err := os.WriteFile(tokens, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const open = `reachable from other machines, without TLS: set %s, or gateway.behind_proxy where a proxy ends TLS, or listen on 127.0.0.1`
	pair := "cert_file: " + cert + ", key_file: " + key
	for name, c := range map[string]struct{ yaml, want string }{
		"loopback":                 {"gateway: {tokens_file: " + tokens + "}", ""},
		"listener on loopback":     {"gateway: {tokens_file: " + tokens + ", listen: '127.0.0.1:7481'}", ""},
		"listener with TLS":        {"gateway: {tokens_file: " + tokens + ", listen: ':7481', tls: {" + pair + ", client_ca_file: " + cert + "}}", ""},
		"listener, proxy":          {"gateway: {tokens_file: " + tokens + ", listen: ':7481', behind_proxy: true}", ""},
		"main listener, proxy":     {"listen: ':7480'\ntokens: [{token: x, tenant: a}]\ngateway: {tokens_file: " + tokens + ", behind_proxy: true}", ""},
		"main listener, its TLS":   {"listen: ':7480'\ntls: {" + pair + "}\ntokens: [{token: x, tenant: a}]\ngateway: {tokens_file: " + tokens + "}", ""},
		"main listener, its proxy": {"listen: ':7480'\nbehind_proxy: true\ntokens: [{token: x, tenant: a}]\ngateway: {tokens_file: " + tokens + "}", ""},
		"listener, other's TLS":    {"tls: {" + pair + "}\ngateway: {tokens_file: " + tokens + ", listen: ':7481'}", `gateway is served at ":7481", ` + fmt.Sprintf(open, "gateway.tls")},
		"main listener":            {"listen: ':7480'\ntokens: [{token: x, tenant: a}]\ngateway: {tokens_file: " + tokens + "}", `gateway is served at ":7480", ` + fmt.Sprintf(open, "tls")},
		"listener":                 {"gateway: {tokens_file: " + tokens + ", listen: ':7481'}", `gateway is served at ":7481", ` + fmt.Sprintf(open, "gateway.tls")},
		"no tokens":                {"gateway: {listen: '127.0.0.1:7481'}", `gateway.tokens_file is missing, expected the file that says which tokens may be which nodes`},
		"pings too far apart":      {"gateway: {tokens_file: " + tokens + ", ping_interval: 11m}", `gateway.ping_interval is 11m, expected 1s to 10m`},
		"pings of clients":         {"session: {ping_interval: 0s}", `session.ping_interval is 0s, expected 1s to 10m`},
		"no tokens, a proxy":       {"gateway: {behind_proxy: true}", `gateway.tokens_file is missing, expected the file that says which tokens may be which nodes`},
		"tokens not there":         {"gateway: {tokens_file: /nowhere/tokens}", `gateway.tokens_file is "/nowhere/tokens", which cannot be read: no such file or directory`},
		"address":                  {"gateway: {tokens_file: " + tokens + ", listen: '7481'}", `gateway.listen is "7481", expected host:port such as 127.0.0.1:7481 or :7481`},
		"TLS, main listener":       {"gateway: {tokens_file: " + tokens + ", tls: {" + pair + "}}", `gateway.tls is set without gateway.listen, expected both, or tls: that is for agents at listen`},
		"no key":                   {"gateway: {tokens_file: " + tokens + ", listen: ':7481', tls: {cert_file: " + cert + "}}", `gateway.tls.cert_file and gateway.tls.key_file go together, expected both`},
		"no certificate":           {"gateway: {tokens_file: " + tokens + ", listen: '[::1]:7481', tls: {client_ca_file: " + cert + "}}", `gateway.tls.cert_file and gateway.tls.key_file go together, expected both`},
		"key not there":            {"gateway: {tokens_file: " + tokens + ", listen: ':7481', tls: {cert_file: " + cert + ", key_file: /nowhere/key}}", `gateway.tls.key_file is "/nowhere/key", which cannot be read: no such file or directory`},
		"key of another":           {"gateway: {tokens_file: " + tokens + ", listen: ':7481', tls: {cert_file: " + cert + ", key_file: " + other + "}}", `gateway.tls.cert_file is "` + cert + `", no certificate of gateway.tls.key_file: tls: private key does not match public key`},
		"no authorities":           {"gateway: {tokens_file: " + tokens + ", listen: ':7481', tls: {" + pair + ", client_ca_file: " + key + "}}", `gateway.tls.client_ca_file is "` + key + `", which holds no certificate in PEM`},
		"agents":                   {"gateway: {max_agents: 0}", `gateway.max_agents is 0, expected 1 to 100000`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := loadYAML(t, c.yaml)
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if diff := cmp.Diff(want, problems); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func writeCertificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certtest.NewAuthority(t).Write(t, cert, key, name)
	return cert, key
}
