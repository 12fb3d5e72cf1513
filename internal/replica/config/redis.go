package config

import (
	"net/url"
	"strconv"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/selection"
)

// defaultKeyPrefix is Redis.KeyPrefix unless it is set.
const defaultKeyPrefix = "scheduler"

// ResolveRedis drops the default of redis.url if redis.urls is set.
func ResolveRedis(rawURL *string, urls []string, isSet func(path string) bool, p *Problems) {
	switch {
	case len(urls) == 0:
	case isSet("redis.url"):
		p.Addf("redis.url", "is set beside redis.urls, expected one of them")
	default:
		*rawURL = ""
	}
}

// ValidateRedis records what is wrong with the URLs of the servers and the number of cells. It
// ignores rawURL if there are urls.
func ValidateRedis(rawURL string, urls []string, cells int, p *Problems) {
	if len(urls) == 0 {
		validateRedisURL("redis.url", rawURL, p)
	}
	first := make(map[string]int, len(urls))
	for i, u := range urls {
		at := element("redis.urls", i)
		validateRedisURL(at, u, p)
		if j, ok := first[u]; ok {
			p.Addf(at, "is the same as redis.urls[%d], expected each server once", j)
		} else {
			first[u] = i
		}
	}
	p.Between("redis.cells", cells, 1, selection.MaxCells)
	if len(urls) > cells && !p.Has("redis.cells") {
		p.Addf(
			"redis.urls", "has %d entries, expected at most redis.cells (%d): a server without a cell would have nothing to do",
			len(urls), cells,
		)
	}
}

// RedisTLS configures connections by rediss://; see [redisclient.TLS].
type RedisTLS struct {
	// Certificates (PEM) of the authorities that may sign the servers'. Unset: the authorities that
	// the system trusts.
	CAFile string `koanf:"ca_file"`
	// A certificate of our own (PEM), for servers that want one. It is read at each new
	// connection.
	CertFile string `koanf:"cert_file"`
	// The key of `cert_file` (PEM).
	KeyFile string `koanf:"key_file"`
	// The name in the servers' certificates. Unset: the host in the URL.
	ServerName string `koanf:"server_name"`
}

// Denied returns the advice for an error by which Redis denies a replica something; "" for other
// errors.
func (c Redis) Denied(err error) string {
	return c.Access().Denied(err, FirstURL(c.URL, c.URLs), func(user string) string {
		if user == "replica" { // its default name
			user = ""
		}
		return ACLCommand("replica", user, c.KeyPrefix, c.Cells)
	})
}

// FirstURL returns the URL of one server; all servers have the same users.
func FirstURL(rawURL string, urls []string) string {
	if len(urls) > 0 {
		return urls[0]
	}
	return rawURL
}

// ACLCommand returns the command that prints the rules of a user; "" is the user of the role.
func ACLCommand(role, user, prefix string, cells int) string {
	command := "schedctl acl --role " + role
	if user != "" {
		command += " --user " + user
	}
	if prefix != defaultKeyPrefix {
		command += " --key-prefix " + prefix
	}
	if cells > 1 {
		command += " --cells " + strconv.Itoa(cells)
	}
	return command
}

// Access returns the credentials and certificates of connections.
func (c Redis) Access() redisclient.Access {
	return redisclient.Access{
		Username: c.Username, PasswordFile: c.PasswordFile,
		SentinelUsername: c.SentinelUsername, SentinelPasswordFile: c.SentinelPasswordFile,
		TLS: redisclient.TLS(c.TLS),
	}
}

// ValidateRedisAccess records what is wrong with the credentials and certificates.
func ValidateRedisAccess(access redisclient.Access, rawURL string, urls []string, p *Problems) {
	if len(urls) == 0 {
		urls = []string{rawURL}
	}
	for _, found := range access.Check(urls...) {
		p.Field(found.Field, found)
	}
}

const redisURLForm = "redis://[user:password@]host:port[/db], or rediss:// for TLS"

func validateRedisURL(path, raw string, p *Problems) {
	u, err := url.Parse(raw)
	tcp := err == nil && u.Host != "" && (u.Scheme == "redis" || u.Scheme == "rediss")
	if unix := err == nil && u.Scheme == "unix" && u.Path != ""; !tcp && !unix {
		p.Addf(path, "is not a Redis URL, expected "+redisURLForm)
	} else if err := redisclient.CheckURL(raw); err != nil {
		p.Addf(path, "is not a Redis URL: %v; expected "+redisURLForm, err)
	}
}
