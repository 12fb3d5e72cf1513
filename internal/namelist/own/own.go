// Package own gives a replica a client of lists of its own, on its control server: for jobs that a
// chain admits, and for programs that ask a chain by HTTP.
package own

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"go.uber.org/zap"

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
}

// New makes a holder. It does no I/O.
func New(cfg config.Replica, log *zap.Logger) *Lists {
	access := cfg.Redis.Access()
	return &Lists{cfg: namelist.Config{
		RedisURL: cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]), KeyPrefix: cfg.Redis.KeyPrefix,
		ClientName: "replica", Logger: log,
		Access: namelist.Access{
			Username: access.Username, PasswordFile: access.PasswordFile,
			SentinelUsername: access.SentinelUsername, SentinelPasswordFile: access.SentinelPasswordFile,
			CAFile: access.TLS.CAFile, CertFile: access.TLS.CertFile, KeyFile: access.TLS.KeyFile,
			ServerName: access.TLS.ServerName,
		},
	}}
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
	l.mu.Unlock()
	if client == nil {
		return nil
	}
	return client.Close(ctx)
}
