package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestListen: plain HTTP to other machines, and tokens that they can guess, are let pass for one
// release, and named.
func TestListen(t *testing.T) {
	t.Parallel()
	cert, key := writeCertificate(t, t.TempDir(), "a")
	_, other := writeCertificate(t, t.TempDir(), "b")
	const (
		plain = `listen is ":7480", reachable from other machines without TLS, so that tokens and results cross the network in ` +
			`the clear: set tls, or behind_proxy: true where a proxy ends TLS, or listen on 127.0.0.1`
		guessed = "tokens[0].token can be guessed from other machines, expected 16 characters or more, as `openssl rand -hex 32` prints"
		open    = "listen: ':7480'\ntokens: [{token: 0123456789abcdef, tenant: a}]\n"
		pair    = "tls.cert_file and tls.key_file go together, expected both"
	)
	secure := "tls: {cert_file: " + cert + ", key_file: " + key + "}\n"
	for name, c := range map[string]struct{ yaml, insecure, refused string }{
		"loopback":             {"listen: '[::1]:7480'\ntokens: [{token: a, tenant: a}]", "", ""},
		"plain":                {open, plain, ""},
		"plain, a short token": {"listen: ':7480'\ntokens: [{token: a, tenant: a}]", plain + "\n" + guessed, ""},
		"TLS, a short token":   {"listen: ':7480'\ntokens: [{token: a, tenant: a}]\n" + secure, guessed, ""},
		"TLS":                  {open + secure, "", ""},
		"a proxy":              {open + "behind_proxy: true", "", ""},
		"advertised":           {open + secure + "advertise: https://a:7480", "", ""},
		"advertised as plain":  {open + secure + "advertise: http://a:7480", "", `advertise is "http://a:7480", and tls is set, expected a URL that begins with https://`},
		"monitoring":           {"metrics_listen: ':7491'", "", ""},
		"monitoring, no port":  {"metrics_listen: '7491'", "", `metrics_listen is "7491", expected host:port such as 127.0.0.1:7491`},
		"monitoring as listen": {"metrics_listen: '127.0.0.1:7480'", "", `metrics_listen is "127.0.0.1:7480" like listen, expected another address, or none: /metrics is at listen then`},
		"monitoring, a token":  {"metrics_listen: ':7491'\nauth: {metrics: true}", "", `auth.metrics is true beside metrics_listen, which has no TLS for tokens, expected one of them`},
		"no key":               {open + "tls: {cert_file: " + cert + "}", "", pair},
		"no certificate":       {open + "tls: {client_ca_file: " + cert + "}", "", pair},
		"key not there":        {open + "tls: {cert_file: " + cert + ", key_file: /nowhere/key}", "", `tls.key_file is "/nowhere/key", which cannot be read: no such file or directory`},
		"key of another":       {open + "tls: {cert_file: " + cert + ", key_file: " + other + "}", "", `tls.cert_file is "` + cert + `", no certificate of tls.key_file: tls: private key does not match public key`},
		"no authorities":       {open + "tls: {cert_file: " + cert + ", key_file: " + key + ", client_ca_file: " + key + "}", "", `tls.client_ca_file is "` + key + `", which holds no certificate in PEM`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, problems := loadYAML(t, c.yaml)
			var want []string
			if c.refused != "" {
				want, cfg.Insecure = []string{c.refused}, config.Problems{}
			}
			if diff := cmp.Diff(want, problems); diff != "" {
				t.Errorf("what is refused (-expected +came):\n%s", diff)
			}
			if got := cfg.Insecure.Error(); got != c.insecure {
				t.Errorf("insecure is\n%s\nexpected\n%s", got, c.insecure)
			}
		})
	}
}
