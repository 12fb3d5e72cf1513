// Package own gives a replica a client of lists of its own, on its control server: for jobs that a
// chain admits, and for programs that ask a chain by HTTP.
package own

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/namelist"
)

var errStopped = errors.New("the replica stops")

// Lists holds the client, which is opened when it is first needed. It is safe for concurrent use.
type Lists struct {
	cfg namelist.Config

	mu      sync.Mutex
	client  *namelist.Client // guarded by mu; nil until it is needed
	stopped bool             // guarded by mu
	guest   guest            // guarded by mu
	closing sync.WaitGroup   // clients of guests that close
}

// New makes a holder. It does no I/O. reg gets the client's metrics of answers.
func New(cfg config.Replica, log *zap.Logger, reg prometheus.Registerer) *Lists {
	access := cfg.Redis.Access()
	return &Lists{cfg: namelist.Config{
		RedisURL: cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]), KeyPrefix: cfg.Redis.KeyPrefix,
		ClientName: "replica", Logger: log, Registerer: answers{reg},
		Access: namelist.Access{
			Username: access.Username, PasswordFile: access.PasswordFile,
			SentinelUsername: access.SentinelUsername, SentinelPasswordFile: access.SentinelPasswordFile,
			CAFile: access.TLS.CAFile, CertFile: access.TLS.CertFile, KeyFile: access.TLS.KeyFile,
			ServerName: access.TLS.ServerName,
		},
	}}
}

// answers registers the metrics of answers alone: the replica has metrics of its own for calls to
// Redis, under the same names.
type answers struct{ prometheus.Registerer }

// MustRegister registers collectors.
func (a answers) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		described := make(chan *prometheus.Desc, 16)
		go func() {
			c.Describe(described)
			close(described)
		}()
		mine := false
		for d := range described {
			mine = mine || strings.Contains(d.String(), `"freeslot_namelist_`)
		}
		if mine {
			a.Registerer.MustRegister(c)
		}
	}
}

// Client returns the client, which connects by itself.
func (l *Lists) Client() (*namelist.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return nil, errStopped
	}
	var err error
	if l.client == nil {
		l.client, err = namelist.Open(l.cfg)
	}
	return l.client, err
}

// Stop closes the client.
func (l *Lists) Stop(ctx context.Context) error {
	l.mu.Lock()
	client := l.client
	l.stopped = true
	l.letGo()
	l.mu.Unlock()
	err := ending.Await(ctx, "close clients of lists", l.closing.Wait)
	if client == nil {
		return err
	}
	return errors.Join(err, client.Close(ctx))
}
