package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	redisserver "github.com/freeslot/freeslot/internal/redis/server"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// issue makes a certificate that is valid for that time from now.
func (a *authority) issue(name string, ends time.Duration, hosts ...string) (certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(ends), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "EC PRIVATE KEY", private)
}

// newTLS starts a server that also listens with TLS; with auth "yes" it asks its clients for a
// certificate.
func newTLS(t *testing.T, ca *authority, auth, certFile, keyFile string) (url string) {
	t.Helper()
	port, err := redisserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	redistest.New(t, redistest.Args("--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-ca-cert-file", ca.file, "--tls-auth-clients", auth))
	// Reading the certificates of the system takes seconds on a busy machine.
	return "rediss://127.0.0.1:" + strconv.Itoa(port) + "?dial_timeout=20s"
}

func ping(t *testing.T, c rueidis.Client) error {
	t.Helper()
	return c.Do(deadline(t), c.B().Ping().Build()).Error()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	cert, key := ca.issue("server", time.Hour, "127.0.0.1")
	ours, oursKey := ca.issue("client", time.Hour)
	theirs, theirsKey := other.issue("client", time.Hour)
	lateCert, lateKey := ca.issue("late", -time.Hour)
	elsewhere, elsewhereKey := ca.issue("elsewhere", time.Hour, "redis.example")
	oldCert, oldKey := ca.issue("old", -time.Hour, "127.0.0.1")
	open, mutual := newTLS(t, ca, "no", cert, key), newTLS(t, ca, "yes", cert, key)
	named, old := newTLS(t, ca, "no", elsewhere, elsewhereKey), newTLS(t, ca, "no", oldCert, oldKey)
	plain := redistest.New(t)
	for name, test := range map[string]struct {
		url  string
		tls  TLS
		want string // of the error; empty for none
	}{
		"server's":             {open, TLS{CAFile: ca.file}, ""},
		"mutual":               {mutual, TLS{CAFile: ca.file, CertFile: ours, KeyFile: oursKey}, ""},
		"other name":           {named, TLS{CAFile: ca.file, ServerName: "redis.example"}, ""},
		"no CA":                {open, TLS{}, "redis.tls.ca_file"},
		"wrong CA":             {open, TLS{CAFile: other.file}, "redis.tls.ca_file"},
		"wrong name":           {named, TLS{CAFile: ca.file}, "redis.tls.server_name"},
		"expired":              {old, TLS{CAFile: ca.file}, "has expired"},
		"no certificate":       {mutual, TLS{CAFile: ca.file}, "redis.tls.cert_file and redis.tls.key_file"},
		"foreign certificate":  {mutual, TLS{CAFile: ca.file, CertFile: theirs, KeyFile: theirsKey}, "redis.tls.cert_file"},
		"expired certificate":  {mutual, TLS{CAFile: ca.file, CertFile: lateCert, KeyFile: lateKey}, "redis.tls.cert_file"},
		"server without TLS":   {"rediss://" + plain.Addrs()[0], TLS{CAFile: ca.file}, "use redis:// in place of rediss://"},
		"client without TLS":   {strings.Replace(open, "rediss:", "redis:", 1), TLS{}, "rediss://"},
		"files without rediss": {plain.URL(), TLS{CAFile: ca.file}, "redis.tls is set, and the URL does not begin with rediss://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for role, openRole := range roles {
				c, err := openRole(Config{URL: test.url, Access: Access{TLS: test.tls}})
				if err == nil {
					err = ping(t, c)
					c.Close()
				}
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: got %v, want %q", role, err, test.want)
				}
			}
		})
	}
}

// TestPasswordRotation: the next connection uses a changed password.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.Args("--user", "agent", "on", ">first", "~*", "&*", "+@all"))
	admin := redis.Client(t)
	do := func(args ...string) {
		t.Helper()
		if err := admin.Do(deadline(t), admin.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	for role, openRole := range roles {
		do("ACL", "SETUSER", "agent", "resetpass", ">first")
		write("first")
		c := open(t, openRole, Config{URL: redis.URL(), Access: Access{Username: "agent", PasswordFile: file}})
		if who, err := c.Do(deadline(t), c.B().AclWhoami().Build()).ToString(); err != nil || who != "agent" {
			t.Fatal(role, who, err)
		}
		do("ACL", "SETUSER", "agent", "resetpass", ">second")
		write("second")
		do("CLIENT", "KILL", "USER", "agent")
		waittest.Until(t, role+" to come back", func() bool { return ping(t, c) == nil })
	}
	write("third")
	_, err := Agent(Config{URL: redis.URL(), Access: Access{Username: "agent", PasswordFile: file}})
	if err == nil || !strings.Contains(err.Error(), "WRONGPASS") || !strings.Contains(err.Error(), "redis.password_file") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestSentinelPassword: sentinels have credentials of their own.
func TestSentinelPassword(t *testing.T) {
	t.Parallel()
	opt, err := Config{URL: "redis://user@127.0.0.1:1?master_set=main", Access: Access{
		PasswordFile: textFile(t, "of-servers"), SentinelUsername: "watcher", SentinelPasswordFile: textFile(t, "of-sentinels"),
	}}.option()
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, test := range []struct {
		dialer *net.Dialer
		want   rueidis.AuthCredentials
	}{
		{&opt.Dialer, rueidis.AuthCredentials{Username: "user", Password: "of-servers"}},
		{&opt.Sentinel.Dialer, rueidis.AuthCredentials{Username: "watcher", Password: "of-sentinels"}},
	} {
		conn, err := opt.DialCtxFn(t.Context(), l.Addr().String(), test.dialer, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := opt.AuthCredentialsFn(rueidis.AuthCredentialsContext{Address: conn.RemoteAddr()})
		if err != nil || got != test.want {
			t.Errorf("%+v, %v; want no error, got == %v", got, err, test.want)
		}
		_ = conn.Close()
	}
}

// TestSentinelErrors: the advice names the key of the credentials that were refused, and the master
// that sentinels do not know.
func TestSentinelErrors(t *testing.T) {
	t.Parallel()
	master := redistest.New(t)
	conf := textFile(t, "sentinel monitor main 127.0.0.1 "+strconv.Itoa(master.Process().Port())+" 1\n")
	sentinel := redistest.New(t, func(c *redisserver.Config) { c.ConfigFile = conf }, redistest.Args("--sentinel"))
	at := "redis://" + sentinel.Addrs()[0] + "?master_set="
	wrong := textFile(t, "wrong")
	for name, tt := range map[string]struct {
		cfg        Config
		want, lack string
	}{
		"sentinel's password": {
			Config{URL: at + "main", Access: Access{SentinelUsername: "u", SentinelPasswordFile: wrong}},
			"redis.sentinel_username and redis.sentinel_password_file", "redis.password_file",
		},
		"master's password": {
			Config{URL: at + "main", Access: Access{Username: "u", PasswordFile: wrong}},
			"redis.username and redis.password_file", "sentinel_password_file",
		},
		"unknown master": {Config{URL: at + "other"}, "master_set=other", "password"},
	} {
		for role, openRole := range roles {
			_, err := openRole(tt.cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.lack) {
				t.Errorf("%s, %s: %v, expected %q and not %q", name, role, err, tt.want, tt.lack)
			}
		}
	}
	admin := sentinel.Client(t)
	if err := admin.Do(deadline(t), admin.B().Arbitrary("ACL", "SETUSER", "default", "resetpass", ">p").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"no password": {URL: at + "main"}, "a wrong one": {URL: at + "main", Access: Access{SentinelPasswordFile: wrong}},
	} {
		if _, err := Commands(cfg); err == nil || !strings.Contains(err.Error(), "redis.sentinel_password_file") {
			t.Errorf("%s for the sentinel: %v, expected the key of its password", name, err)
		}
	}
}

// TestPasswordFileGone: the error has no code, because a worker would drop its report for that.
func TestPasswordFileGone(t *testing.T) {
	t.Parallel()
	file := textFile(t, "secret")
	opt, err := Config{URL: "redis://127.0.0.1:1", Access: Access{Username: "u", PasswordFile: file}}.option()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err = opt.AuthCredentialsFn(rueidis.AuthCredentialsContext{})
	if err == nil || !strings.HasPrefix(err.Error(), "redis.password_file cannot be read: "+file) || freeslot.CodeOf(err) != freeslot.CodeInternal {
		t.Errorf("got %v", err)
	}
}

func textFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAccessCheck(t *testing.T) {
	t.Parallel()
	empty, text := textFile(t, "\n"), textFile(t, "text")
	for want, test := range map[string]struct {
		access Access
		url    string
	}{
		"redis.username is set beside a user":                {Access{Username: "u", PasswordFile: text}, "redis://v@h"},
		"redis.password_file is set beside a password":       {Access{PasswordFile: text}, "redis://:p@h"},
		"redis.username is set without password_file":        {Access{Username: "u"}, "redis://h"},
		"redis.sentinel_username is set without":             {Access{SentinelUsername: "u"}, "redis://h"},
		"redis.password_file cannot be read: /none: no such": {Access{PasswordFile: "/none"}, "redis://h"},
		"redis.password_file names " + empty + ", which is":  {Access{PasswordFile: empty}, "redis://h"},
		"redis.sentinel_password_file cannot be read":        {Access{SentinelPasswordFile: "/none"}, "redis://h"},
		"redis.tls.ca_file cannot be read: /none: no such":   {Access{TLS: TLS{CAFile: "/none"}}, "rediss://h"},
		"redis.tls.ca_file names " + text + ", which has":    {Access{TLS: TLS{CAFile: text}}, "rediss://h"},
		"redis.tls.cert_file and redis.tls.key_file go":      {Access{TLS: TLS{CertFile: text}}, "rediss://h"},
		"redis.tls.key_file cannot be read":                  {Access{TLS: TLS{CertFile: text, KeyFile: "/none"}}, "rediss://h"},
		"redis.tls.cert_file and redis.tls.key_file are no":  {Access{TLS: TLS{CertFile: text, KeyFile: text}}, "rediss://h"},
		"redis.tls is set, and the URL does not begin":       {Access{TLS: TLS{ServerName: "x"}}, "redis://h"},
		"": {Access{PasswordFile: text}, "redis://u@h"},
	} {
		found := test.access.Check(test.url)
		switch {
		case want == "" && len(found) > 0:
			t.Error(found[0])
		case want != "" && (len(found) == 0 || !strings.HasPrefix(found[0].Message, want)):
			t.Errorf("got %v, want %q", found, want)
		}
	}
}
