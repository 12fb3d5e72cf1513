package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/registry"
)

// provideMode is a child that holds instances until its standard input ends or it is killed.
const provideMode = "provide"

// provision is what such a child holds.
type provision struct {
	URL, Service string
	Prefix       string // of ids
	Count        int
	Interval     time.Duration
	Check        bool // TCP, each second, two failures
}

// startProvision waits until all instances are registered.
func startProvision(ctx context.Context, p provision) *measure.Child {
	return tool.StartChild(ctx, "provider "+p.Prefix, provideMode, p)
}

func provide(ctx context.Context, arg []byte, serve func(func([]byte) any)) {
	p := tool.Decode[provision](arg)
	defer tool.End(p.hold(ctx))
	serve(func([]byte) any { return nil })
}

// hold registers the instances at a port of this process, which takes connections.
func (p *provision) hold(ctx context.Context) (stop func() error) {
	listener := tool.Must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	provider, err := startProvider(ctx, p.URL)
	if err != nil {
		tool.Check(errors.Join(err, listener.Close()))
	}
	tool.Check(registerAll(ctx, provider, p.Service, p.Count, func(r *registry.Registration) {
		r.ID, r.Host, r.Port, r.Interval = p.Prefix+r.ID, "127.0.0.1", listener.Addr().(*net.TCPAddr).Port, p.Interval
		if p.Check {
			r.Check = &registry.Check{Kind: "tcp", Interval: registry.Milliseconds(time.Second), Fall: 2}
		}
	}))
	return func() error { return errors.Join(listener.Close(), leave(provider)) }
}

// leave stops a provider without a word to Redis: the caller empties it.
func leave(p *registry.Provider) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(ctx) // ctx keeps it from deregistering
	return nil
}
