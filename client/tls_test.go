package client

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/certtest"
)

// Files that cannot be used, or that nothing would use, are refused before anything is dialled.
func TestTLSOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	certtest.NewAuthority(t).WriteCA(t, ca)
	for want, c := range map[string]struct {
		url string
		tls TLS
	}{
		"tls is set, and a URL does not begin with wss://": {"wss://127.0.0.1:1,ws://127.0.0.1:1", TLS{CAFile: ca}},
		"tls.cert_file and tls.key_file go together":       {"wss://127.0.0.1:1", TLS{CertFile: ca}},
		"tls.ca_file cannot be read":                       {"wss://127.0.0.1:1", TLS{CAFile: filepath.Join(dir, "none")}},
	} {
		_, err := Dial(t.Context(), c.url, Options{TLS: c.tls})
		if freeslot.CodeOf(err) != freeslot.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v gives %v; want invalid_argument: %s", c.tls, err, want)
		}
	}
}
