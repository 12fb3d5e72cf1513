package registry

import (
	"context"
	"errors"
	"time"
)

// Naming is a Provider and a Consumer that share their connections to Redis: two to each server.
type Naming struct {
	*Provider
	*Consumer
}

// NamingOptions configures a Naming: the options of a provider, and the options that only a
// consumer has, as in ConsumerOptions.
type NamingOptions struct {
	Options
	Timeout     time.Duration
	Figures     bool
	SnapshotDir string
}

// NewNaming makes a Naming. It does no I/O. Errors: an *freeslot.Error that names every bad option.
func NewNaming(opts NamingOptions) (*Naming, error) {
	consumer, err := NewConsumer(ConsumerOptions{
		RedisURL: opts.RedisURL, Access: opts.Access, KeyPrefix: opts.KeyPrefix, Namespace: opts.Namespace,
		Timeout: opts.Timeout, Figures: opts.Figures, SnapshotDir: opts.SnapshotDir, Logger: opts.Logger,
		Registerer: opts.Registerer,
	})
	if err != nil {
		return nil, err
	}
	provider, err := newProvider(opts.Options, consumer.redis)
	if err != nil {
		return nil, err
	}
	return &Naming{Provider: provider, Consumer: consumer}, nil
}

// Start connects to Redis. It works as the consumer's Start: with a folder of snapshots, it
// succeeds even if Redis is away.
func (n *Naming) Start(ctx context.Context) error {
	if err := n.Consumer.Start(ctx); err != nil {
		return err
	}
	return n.Provider.Start(ctx)
}

// Stop stops the provider, as Provider.Stop does, and then the consumer. It can be called on a
// Naming that was never started, and twice.
func (n *Naming) Stop(ctx context.Context) error {
	return errors.Join(n.Provider.Stop(ctx), n.Consumer.Stop(ctx))
}

// Running reports whether both run.
func (n *Naming) Running() bool { return n.Provider.Running() && n.Consumer.Running() }
