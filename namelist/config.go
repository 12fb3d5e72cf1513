package namelist

import (
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// Defaults and bounds of Config.
const (
	DefaultKeyPrefix  = "scheduler"
	DefaultMaxBytes   = 64 << 20
	DefaultDeadline   = 50 * time.Millisecond
	DefaultClientName = "namelist"

	MinMaxBytes = 1 << 20
	MaxDeadline = 10 * time.Second
)

// Config configures a client. Set either RedisURL or URL. The zero value of each other field means
// its default.
type Config struct {
	// RedisURL is the control server's URL: redis://[user:password@]host:port[/db], rediss:// for
	// TLS, with &addr=host:port for each further node of a cluster, or &master_set=name for
	// sentinels. The client finds list servers by it; the process is the same user on all of them.
	RedisURL string
	// URL is the URL of the replicas, instead of Redis: http://host:port or https://host:port, or
	// several separated by commas; if one fails, the client asks the next. Token is the process'
	// token; any token that the replicas accept will do.
	URL, Token string
	// Access holds credentials and certificates. With URL only the certificates are used.
	Access Access
	// KeyPrefix is the first part of all keys, default "scheduler". With URL the replicas use their
	// own.
	KeyPrefix string
	// MaxBytes bounds the filters, edits and cache of all lists, and both versions of a switch:
	// default 64 MiB, at least 1 MiB. The cache gets a quarter. Blocks of filters that do not fit
	// are left out, and Redis is asked for their ids.
	MaxBytes int64
	// Deadline is how long a check waits for Redis or a replica, default 50 ms, at most 10 s. The
	// first check of a list also waits at most that long for the list.
	Deadline time.Duration
	// SnapshotDir is a folder for what is loaded, from which a process can start while Redis is
	// away. Its answers are then stale. A list that is held whole gives all its answers. Other
	// lists answer what edits and the filter decide, and unknown for what only Redis can decide.
	// The folder is made if it does not exist, and must be writable. Empty means none. Several
	// processes may share one.
	SnapshotDir string
	// ClientName is the name under which operators see the process, default "namelist", at most 48
	// characters. A random part is added.
	ClientName string
	// Logger may be nil. Registerer may be nil; two clients on one registerer panic.
	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

// Access says how the process proves its identity to Redis, and how the servers prove theirs. The
// zero value uses only the URL.
type Access struct {
	// Username is the user to connect as, unless the URL names one. PasswordFile holds the
	// password; it is read at each new connection.
	Username, PasswordFile string
	// SentinelUsername and SentinelPasswordFile are the same for sentinels.
	SentinelUsername, SentinelPasswordFile string
	// CAFile holds the certificates, in PEM, of the authorities that may sign the servers'
	// certificates; empty means the authorities that the system trusts. CertFile and KeyFile are
	// this process' own certificate and key, for servers that ask for one. ServerName is the name
	// that the servers' certificates must have; empty means the host of each connection.
	CAFile, CertFile, KeyFile, ServerName string
}

func (a Access) redis() redisclient.Access {
	return redisclient.Access{
		Username: a.Username, PasswordFile: a.PasswordFile,
		SentinelUsername: a.SentinelUsername, SentinelPasswordFile: a.SentinelPasswordFile,
		TLS: redisclient.TLS{CAFile: a.CAFile, CertFile: a.CertFile, KeyFile: a.KeyFile, ServerName: a.ServerName},
	}
}

// withDefaults returns c with its defaults filled in.
func (c Config) withDefaults() Config {
	if c.KeyPrefix == "" {
		c.KeyPrefix = DefaultKeyPrefix
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Deadline == 0 {
		c.Deadline = DefaultDeadline
	}
	if c.ClientName == "" {
		c.ClientName = DefaultClientName
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// maxClientName leaves room for the random part.
const maxClientName = 48

// validate returns an error that names every bad field.
func (c Config) validate() error {
	var found freeslot.FieldErrors
	c.validateSource(&found)
	if strings.ContainsAny(c.KeyPrefix, "{}") || strings.ContainsFunc(c.KeyPrefix, unicode.IsControl) {
		found.Addf("key_prefix", "is %q, expected no braces and no control characters", c.KeyPrefix)
	}
	if c.MaxBytes < MinMaxBytes {
		found.Addf("max_bytes", "is %d, expected at least %d", c.MaxBytes, MinMaxBytes)
	}
	if c.Deadline < 0 || c.Deadline > MaxDeadline {
		found.Addf("deadline", "is %s, expected up to %s", c.Deadline, MaxDeadline)
	}
	if len(c.ClientName) > maxClientName {
		found.Addf("client_name", "has %d characters, expected at most %d", len(c.ClientName), maxClientName)
	} else {
		found.Add(freeslot.ValidateName("client_name", c.ClientName))
	}
	return found.Err()
}

// validateSource adds what is wrong with the place that lists come from.
func (c Config) validateSource(found *freeslot.FieldErrors) {
	if (c.RedisURL == "") == (c.URL == "") {
		for _, field := range []string{"redis_url", "url"} {
			found.Addf(field, "is one of redis_url and url, expected one of them and not both")
		}
		return
	}
	if c.URL == "" {
		if c.Token != "" {
			found.Addf("token", "is set with redis_url, expected it with url alone")
		}
		if err := redisclient.CheckURL(c.RedisURL); err != nil {
			found.Addf("redis_url", "is not a Redis URL: %s", err)
		} else {
			*found = append(*found, c.Access.redis().Check(c.RedisURL)...)
		}
		return
	}
	secure, err := checkURL(c.URL)
	if err != nil {
		found.Addf("url", "is not what a client can ask: %s", err)
	}
	files := c.Access.redis().TLS
	if files != (redisclient.TLS{}) && err == nil && !secure {
		found.Addf("access", "has certificates, and a URL does not begin with https://, expected ones that do")
	}
	if c.Access.Username != "" || c.Access.PasswordFile != "" {
		found.Addf("access", "has a user of Redis, expected a token with url")
	}
	*found = append(*found, files.Check("access")...)
}
