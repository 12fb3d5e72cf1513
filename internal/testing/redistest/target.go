package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Target is a Redis to test against: one server or a cluster. It is immutable and safe for
// concurrent use.
type Target struct {
	name    string
	addrs   []string
	cluster bool
	user    string // with which URL connects; empty for the default user
}

// At describes a Redis that another program runs: the server at addrs[0], or the cluster with the
// members addrs.
func At(name string, cluster bool, addrs ...string) *Target {
	return &Target{name: name, cluster: cluster, addrs: append([]string(nil), addrs...)}
}

// Name returns single or cluster, or the name that At got.
func (r *Target) Name() string { return r.name }

// IsCluster reports whether keys must share a hash tag to be used together.
func (r *Target) IsCluster() bool { return r.cluster }

// Addrs returns host:port of the server, or of every master of the cluster. The caller owns the
// slice.
func (r *Target) Addrs() []string { return append([]string(nil), r.addrs...) }

// dialTimeout is longer than a busy machine may make the test process stand still.
const dialTimeout = 20 * time.Second

// URL returns a URL for rueidis.ParseURL; the further masters of a cluster are its addr parameters.
// If the package's tests run with the rights of a role, it names the role's user, while Client
// stays the default user. It ends with parameters: add further ones with &.
func (r *Target) URL() string {
	u := url.URL{Scheme: "redis", Host: r.addrs[0]}
	query := url.Values{"dial_timeout": {dialTimeout.String()}}
	if r.user != "" {
		u.User = url.UserPassword(r.user, rolePassword)
	}
	if len(r.addrs) > 1 {
		query["addr"] = r.addrs[1:]
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Client returns a client that is closed at the end of the test. It has no client-side cache, and
// knows whether the server is a cluster; options may change that.
func (r *Target) Client(tb testing.TB, options ...func(*rueidis.ClientOption)) rueidis.Client {
	tb.Helper()
	opt := rueidis.ClientOption{
		InitAddress:       r.Addrs(),
		DisableCache:      true,
		ForceSingleClient: !r.cluster,
		Dialer:            net.Dialer{Timeout: dialTimeout},
	}
	frugal(tb, &opt)
	for _, o := range options {
		o(&opt)
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		tb.Fatalf("client of the %s Redis at %s: %v", r.name, r.addrs[0], err)
	}
	tb.Cleanup(client.Close)
	return client
}

const longestName = 40

var prefixes atomic.Uint64

// Prefix returns a key prefix that no other call returns, not even in another run against the same
// server. It has only letters, digits and '-': no braces, hence no hash tag.
func (r *Target) Prefix(tb testing.TB) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			return c
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("%s-%08x-%d", name[:min(len(name), longestName)], rand.Uint32(), prefixes.Add(1))
}
