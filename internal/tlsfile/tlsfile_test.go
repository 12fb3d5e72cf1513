package tlsfile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/certtest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	authority := certtest.NewAuthority(t)
	authority.WriteCA(t, at("ca"))
	authority.Write(t, at("cert"), at("key"), "ann")
	authority.Write(t, at("cert2"), at("key2"), "bob")
	for name, c := range map[string]struct {
		files Files
		want  []string
	}{
		"nothing": {Files{}, nil},
		"good":    {Files{CAFile: at("ca"), CertFile: at("cert"), KeyFile: at("key"), ServerName: "a"}, nil},
		"half":    {Files{KeyFile: at("key")}, []string{"x.cert_file and x.key_file go together, expected both or none"}},
		"other": {
			Files{CertFile: at("cert"), KeyFile: at("key2")},
			[]string{"x.cert_file and x.key_file are no certificate with its key"},
		},
		"no CA": {Files{CAFile: at("key")}, []string{"x.ca_file names " + at("key") + ", which has no certificate in PEM"}},
		"both": {Files{CAFile: at("none"), CertFile: at("cert"), KeyFile: at("none")}, []string{
			"x.key_file cannot be read: " + at("none") + ": no such file",
			"x.ca_file cannot be read: " + at("none") + ": no such file",
		}},
	} {
		found := c.files.Check("x")
		if len(found) != len(c.want) {
			t.Errorf("%s: %v; want %q", name, found, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(found[i].Message, want) {
				t.Errorf("%s: %s; want %s", name, found[i].Message, want)
			}
		}
		_, err := c.files.Config("x")
		if (err == nil) != (c.want == nil) || err != nil && freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
			t.Errorf("%s: the configuration gives %v; want a coded error where Check finds one", name, err)
		}
	}
}

// The certificate is read at each connection, so that a renewed one counts.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := Files{CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	authority := certtest.NewAuthority(t)
	authority.Write(t, files.CertFile, files.KeyFile, "old")
	conf, err := files.Config("")
	if err != nil {
		t.Fatal(err)
	}
	authority.Write(t, files.CertFile, files.KeyFile, "new")
	cert, err := conf.GetClientCertificate(nil)
	if err != nil || cert.Leaf.Subject.CommonName != "new" {
		t.Errorf("the certificate is %+v, %v; want the new one", cert, err)
	}
}
