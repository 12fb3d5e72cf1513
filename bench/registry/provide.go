package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/internal/registry"
)

// provideMode is a child that holds instances until its standard input ends or it is killed.
const provideMode = "provide"

// provision is what such a child holds.
type provision struct {
	URL      string        `json:"url"`
	Service  string        `json:"service"`
	Prefix   string        `json:"prefix"` // of ids
	Count    int           `json:"count"`
	Interval time.Duration `json:"interval"`
	Check    bool          `json:"check,omitempty"` // TCP, each second, two failures
}

// startProvision waits until all instances are registered.
func startProvision(ctx context.Context, p provision) (*measure.Child, error) {
	arg, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*answerLimit)
	defer cancel()
	return startSelf(ctx, "provider "+p.Prefix, provideMode, string(arg))
}

func provide(ctx context.Context, arg string) error {
	var p provision
	if err := json.Unmarshal([]byte(arg), &p); err != nil {
		return err
	}
	stop, err := p.hold(ctx)
	if err != nil {
		return err
	}
	fmt.Println(entrant.Ready)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, stop())
}

// hold registers the instances at a port of this process, which takes connections.
func (p *provision) hold(ctx context.Context) (stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
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
		return nil, errors.Join(err, listener.Close())
	}
	err = registerAll(ctx, provider, p.Service, p.Count, func(r *registry.Registration) {
		r.ID, r.Host, r.Port, r.Interval = p.Prefix+r.ID, "127.0.0.1", listener.Addr().(*net.TCPAddr).Port, p.Interval
		if p.Check {
			r.Check = &registry.Check{Kind: "tcp", Interval: registry.Milliseconds(time.Second), Fall: 2}
		}
	})
	return func() error { return errors.Join(listener.Close(), leave(provider)) }, err
}

// leave stops a provider without a word to Redis: the caller empties it.
func leave(p *registry.Provider) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(ctx) // ctx keeps it from deregistering
	return nil
}

func stopConsumer(c *registry.Consumer) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	return c.Stop(ctx)
}
