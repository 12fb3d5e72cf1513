package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/tlsfile"
)

// Access holds the credentials and certificates of a process and of the servers. The zero value
// uses the URL alone.
type Access struct {
	// Username is the user to connect as. Empty means the URL's, or the default user.
	Username string
	// PasswordFile holds the user's password, in place of one in the URL. It is read at each new
	// connection, so that a changed password applies as soon as the old connections are closed.
	PasswordFile string
	// SentinelUsername and SentinelPasswordFile are the same for the sentinels. Without them
	// sentinels get no password.
	SentinelUsername, SentinelPasswordFile string
	TLS                                    TLS
}

// TLS holds the settings that a rediss:// URL leaves open. The process' own certificate is read at
// each new connection.
type TLS = tlsfile.Files

// tlsField is the name of these settings in a configuration.
const tlsField = "redis.tls"

// Check finds everything that is wrong, also in combination with these URLs. It reads the files and
// does not connect.
func (a Access) Check(urls ...string) (found freeslot.FieldErrors) {
	secure, user, password := a.inURLs(urls)
	if a.Username != "" && user {
		found.Addf("redis.username", "is set beside a user in the URL, expected one of them")
	}
	if a.PasswordFile != "" && password {
		found.Addf("redis.password_file", "is set beside a password in the URL, expected one of them")
	}
	if a.Username != "" && a.PasswordFile == "" && !password {
		found.Addf("redis.username", "is set without password_file, expected both")
	}
	if a.SentinelUsername != "" && a.SentinelPasswordFile == "" {
		found.Addf("redis.sentinel_username", "is set without sentinel_password_file, expected both")
	}
	for _, of := range [][2]string{
		{"redis.password_file", a.PasswordFile}, {"redis.sentinel_password_file", a.SentinelPasswordFile},
	} {
		if of[1] == "" {
			continue
		}
		_, err := readPassword(of[0], of[1])
		found.Add(err)
	}
	if a.TLS == (TLS{}) {
		return found
	}
	if !secure {
		found.Addf("redis.tls", "is set, and the URL does not begin with rediss://, expected one that does")
	}
	return append(found, a.TLS.Check(tlsField)...)
}

// inURLs reports what the URLs have. A URL that cannot be parsed is reported elsewhere.
func (a Access) inURLs(urls []string) (secure, user, password bool) {
	secure = true
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		secure = secure && (u.Scheme == "rediss" || u.Scheme == "valkeys")
		if u.User != nil {
			user = user || u.User.Username() != ""
			_, has := u.User.Password()
			password = password || has
		}
	}
	return secure, user, password
}

// uncoded removes the code. A call during which a file turns out to be bad is not invalid itself,
// and a worker would drop a report with that code.
func uncoded(err error) error {
	if coded, ok := errors.AsType[*freeslot.Error](err); ok {
		return errors.New(coded.Message)
	}
	return err
}

// readPassword returns the text of the file without a byte order mark and the newline at its end.
func readPassword(field, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", freeslot.Invalid(field, "cannot be read: %s", tlsfile.Cause(err))
	}
	password := strings.TrimRight(strings.TrimPrefix(string(data), "\ufeff"), "\r\n")
	if password == "" {
		return "", freeslot.Invalid(field, "names %s, which is empty", file)
	}
	return password, nil
}

// apply adds the settings to the URL's.
func (a Access) apply(opt *rueidis.ClientOption, rawURL string) error {
	if found := a.Check(rawURL); len(found) > 0 {
		return errors.New(found[0].Message)
	}
	if opt.TLSConfig != nil {
		if err := applyTLS(a.TLS, opt.TLSConfig); err != nil {
			return err
		}
		opt.Sentinel.TLSConfig = opt.TLSConfig
	}
	if a.Username != "" {
		opt.Username = a.Username
	}
	if a.PasswordFile == "" && a.SentinelPasswordFile == "" {
		return nil
	}
	user, password := opt.Username, opt.Password
	opt.AuthCredentialsFn = func(to rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		credentials := rueidis.AuthCredentials{Username: user, Password: password}
		field, file := "redis.password_file", a.PasswordFile
		if _, ok := to.Address.(sentinelAddr); ok {
			credentials = rueidis.AuthCredentials{Username: a.SentinelUsername}
			field, file = "redis.sentinel_password_file", a.SentinelPasswordFile
		}
		var err error
		if file != "" {
			credentials.Password, err = readPassword(field, file)
		}
		return credentials, uncoded(err)
	}
	return nil
}

// applyTLS adds the settings to the URL's. A name is for all servers; without one it is the host of
// each connection, because a cluster and sentinels have several.
func applyTLS(t TLS, conf *tls.Config) error {
	own, err := t.Config(tlsField)
	if err != nil {
		return uncoded(err)
	}
	conf.RootCAs, conf.ServerName = own.RootCAs, own.ServerName
	if certificate := own.GetClientCertificate; certificate != nil {
		conf.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := certificate(info)
			return cert, uncoded(err)
		}
	}
	return nil
}

// toSentinel marks the dialer of connections to sentinels: rueidis asks for credentials by the
// address alone, and the sentinels have other ones than the servers. As a resolver it is the
// default one.
var toSentinel = new(net.Resolver)

type sentinelAddr struct{ net.Addr }

type sentinelConn struct{ net.Conn }

func (c sentinelConn) RemoteAddr() net.Addr { return sentinelAddr{c.Conn.RemoteAddr()} }

// dial does the same as rueidis, and marks the connections to sentinels.
func dial(ctx context.Context, addr string, dialer *net.Dialer, conf *tls.Config) (conn net.Conn, err error) {
	if conf != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, "tcp", addr)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", addr)
	}
	if err == nil && dialer.Resolver == toSentinel {
		conn = sentinelConn{conn}
	}
	return conn, err
}

// explainAccess adds advice to an error that names no key. bySentinel is true if a sentinel
// refused.
func explainAccess(err error, opt rueidis.ClientOption, bySentinel bool) error {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	text, hint := err.Error(), ""
	closed := strings.HasSuffix(text, "EOF") || strings.Contains(text, "connection reset by peer")
	switch {
	case errors.As(err, &authority):
		hint = "set redis.tls.ca_file to the certificate that signed the server's"
	case errors.As(err, &host):
		hint = "set redis.tls.server_name to a name that the server's certificate has"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "the server's certificate, or one that signed it, has expired or is not valid yet: renew it, or set the clock"
	case errors.As(err, &record):
		hint = "what answers there does not speak TLS: use redis:// in place of rediss://"
	case strings.Contains(
		text, "remote error: tls: certificate required",
	), strings.Contains(text, "remote error: tls: handshake failure"):
		hint = "the server asks for a certificate of ours: set redis.tls.cert_file and redis.tls.key_file"
	case strings.Contains(text, "remote error: tls:"):
		hint = "the server does not take our certificate, redis.tls.cert_file: it has expired, or is signed by none that " +
			"the server trusts"
	case opt.TLSConfig != nil && errors.Is(err, context.DeadlineExceeded):
		hint = "if the server is up it does not speak TLS: use redis:// in place of rediss://"
	case closed && opt.TLSConfig == nil:
		hint = "it may expect TLS: use rediss:// in place of redis://"
	case closed && opt.TLSConfig.GetClientCertificate == nil:
		hint = "the server may ask for a certificate of ours: set redis.tls.cert_file and redis.tls.key_file"
	case closed:
		hint = "the server may not take our certificate, redis.tls.cert_file"
	case opt.Sentinel.MasterSet != "" && strings.HasPrefix(text, "No such master with that name"):
		hint = fmt.Sprintf(
			"master_set=%s in the URL is not the name of a master that the sentinels watch", opt.Sentinel.MasterSet,
		)
	case bySentinel && (strings.HasPrefix(text, "WRONGPASS") || strings.HasPrefix(text, "NOAUTH")):
		hint = "that is the answer of a sentinel: look at redis.sentinel_username and redis.sentinel_password_file"
	case opt.AuthCredentialsFn != nil && (strings.HasPrefix(text, "WRONGPASS") || strings.HasPrefix(text, "NOAUTH")):
		hint = "look at redis.username and redis.password_file; `schedctl acl` makes users"
	case opt.AuthCredentialsFn == nil && opt.Password == "" && strings.HasPrefix(text, "NOAUTH"):
		hint = "the server wants a user: set redis.username and redis.password_file, or put them into the URL"
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}
