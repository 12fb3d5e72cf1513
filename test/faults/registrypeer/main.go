// Command registrypeer provides instances to the registry, follows services, or cleans them up. It
// prints what happens to its instances and each list that it sees as a line of JSON, see
// faults.PeerEvent.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/centre"
	"github.com/freeslot/freeslot/test/faults"
)

const (
	startLimit = 5 * time.Second
	stopLimit  = 5 * time.Second
	// stopPause is the time from the mark that an instance is draining to its end.
	stopPause = 100 * time.Millisecond
	// cleanupEvery is the time from one cleanup to the next, and settingsEvery from one setting of
	// limits to the next.
	cleanupEvery  = 250 * time.Millisecond
	settingsEvery = 300 * time.Millisecond
	// statusEvery is how often the state of the process' own instances is read.
	statusEvery = 20 * time.Millisecond
)

func main() {
	p := peer{}
	flag.StringVar(&p.name, "name", "", "of the program")
	flag.StringVar(&p.url, "redis", "", "URL of Redis")
	flag.StringVar(&p.prefix, "prefix", registry.DefaultKeyPrefix, "of keys")
	flag.StringVar(&p.as, "as", "", "begins the ids of the instances; default is the name")
	provide := flag.String("provide", "", "services of which an instance is provided, with commas between; one can come more than once")
	follow := flag.String("follow", "", "services that are followed, with commas between")
	flag.IntVar(&p.port, "port", 0, "of the first instance")
	flag.DurationVar(&p.interval, "interval", 0, "of heartbeats")
	flag.DurationVar(&p.timeout, "timeout", 0, "after which an instance is late")
	flag.StringVar(&p.snapshots, "snapshots", "", "folder of snapshots; empty is none")
	flag.StringVar(&p.clean, "clean", "", "services that are cleaned up, with commas between")
	flag.DurationVar(&p.limit, "limit", 0, "after which cleanup removes an instance of them")
	flag.Parse()
	p.life = fmt.Sprintf("%s-%d", p.name, os.Getpid())
	if p.as == "" {
		p.as = p.name
	}
	fmt.Println() // an earlier process may have been killed within a line
	if err := p.run(split(*provide), split(*follow)); err != nil {
		fmt.Fprintln(os.Stderr, "registrypeer:", err)
		os.Exit(1)
	}
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

type peer struct {
	name, life, as, url, prefix, snapshots string
	port                                   int
	interval, timeout, limit               time.Duration
	clean                                  string
}

func (p *peer) run(provide, follow []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	var loops sync.WaitGroup
	if len(provide) > 0 {
		provider, err := p.provider()
		if err != nil {
			return err
		}
		for i, service := range provide {
			reg := p.instance(i, service)
			p.report(faults.PeerEvent{Kind: faults.PeerProvides, Service: reg.Service, ID: reg.ID, Address: address(reg)})
			loops.Go(func() { p.register(ctx, provider, reg) })
		}
		loops.Go(func() { p.watch(ctx, provider) })
	}
	if len(follow) > 0 {
		consumer, err := p.consumer()
		if err != nil {
			return err
		}
		for _, service := range follow {
			p.report(faults.PeerEvent{Kind: faults.PeerFollows, Service: service})
			if _, err := consumer.Subscribe(service, p.saw); err != nil {
				return err
			}
		}
	}
	if p.clean != "" {
		store, c, err := p.centre()
		if err != nil {
			return err
		}
		loops.Go(func() { p.limits(ctx, store) })
		loops.Go(func() {
			<-ctx.Done()
			_ = c.Stop(context.Background())
		})
	}
	fmt.Println("registrypeer.started")
	<-ctx.Done()
	loops.Wait()
	return nil
}

func (p *peer) provider() (*registry.Provider, error) {
	provider, err := registry.NewProvider(registry.Options{RedisURL: p.url, KeyPrefix: p.prefix, StopPause: stopPause})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return provider, provider.Start(ctx)
}

func (p *peer) consumer() (*registry.Consumer, error) {
	consumer, err := registry.NewConsumer(registry.ConsumerOptions{RedisURL: p.url, KeyPrefix: p.prefix, Timeout: p.timeout, SnapshotDir: p.snapshots})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return consumer, consumer.Start(ctx)
}

// centre cleans up as replicas do.
func (p *peer) centre() (*registry.Store, *centre.Centre, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	topology, err := client.Inspect(ctx, client.Config{URL: p.url})
	if err != nil {
		return nil, nil, err
	}
	clients, err := topology.Open(client.Commands)
	if err != nil {
		return nil, nil, err
	}
	store := registry.NewStore(clients.For(0), p.prefix, topology.Cluster, zap.NewNop())
	c := centre.New(centre.Config{Self: p.name, Cleanup: cleanupEvery}, store, zap.NewNop(), nil)
	return store, c, c.Start(context.Background())
}

// limits sets the limit of each service again and again: Redis may lose it.
func (p *peer) limits(ctx context.Context, store *registry.Store) {
	tick := time.NewTicker(settingsEvery)
	defer tick.Stop()
	for {
		for _, service := range split(p.clean) {
			limit, cancel := context.WithTimeout(ctx, time.Second)
			_ = store.SetCleanup(limit, service, new(p.limit), new(time.Duration(0))) // Redis may be away, or not have the service
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// instance returns the i-th one. Every other instance names its process; the others have the same
// content when a process comes back.
func (p *peer) instance(i int, service string) registry.Registration {
	reg := registry.Registration{
		Service: service, ID: p.as + "-" + strconv.Itoa(i), Host: "127.0.0.1", Port: p.port + i, Interval: p.interval,
	}
	if i%2 == 0 {
		reg.Metadata = map[string]string{"life": p.life}
	}
	return reg
}

func address(r registry.Registration) string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }

// register begins to provide an instance. The provider goes on after a failure.
func (p *peer) register(ctx context.Context, provider *registry.Provider, reg registry.Registration) {
	if err := provider.Register(ctx, reg); err != nil {
		fmt.Println("register:", err)
	}
}

// instance names one.
type instance struct{ service, id string }

// watch prints what happens to the instances until the end, which it makes.
func (p *peer) watch(ctx context.Context, provider *registry.Provider) {
	last := map[instance]faults.PeerKind{}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		for _, s := range provider.Status() {
			name, kind := instance{s.Service, s.ID}, faults.PeerWaits
			switch {
			case s.Holder != nil && s.Holder.Superseded:
				kind = faults.PeerSuperseded
			case s.Registered:
				kind = faults.PeerRegistered
			}
			if last[name] != kind {
				p.report(faults.PeerEvent{Kind: kind, Service: s.Service, ID: s.ID})
			}
			last[name] = kind
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	stop, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := provider.Stop(stop); err != nil {
		fmt.Println("stop:", err)
		return
	}
	for name, kind := range last {
		if kind == faults.PeerRegistered {
			p.report(faults.PeerEvent{Kind: faults.PeerLeft, Service: name.service, ID: name.id})
		}
	}
}

// saw prints a list.
func (p *peer) saw(l *registry.List) {
	healthy := l.Healthy()
	seen := &faults.SeenList{
		State: string(l.State), Why: l.Why, Revision: l.Revision,
		HealthyState: string(healthy.State), HealthyWhy: healthy.Why, Last: healthy.Last, Instances: []faults.SeenInstance{},
	}
	is := map[string]bool{}
	for _, in := range healthy.Instances {
		is[in.ID] = true
	}
	for _, in := range l.Instances {
		seen.Instances = append(seen.Instances, faults.SeenInstance{
			ID: in.ID, Address: address(in.Registration), Life: in.Metadata["life"], Late: in.Late, Unconfirmed: in.Unconfirmed, Healthy: is[in.ID],
		})
	}
	p.report(faults.PeerEvent{Kind: faults.PeerSaw, Service: l.Service, List: seen})
}

// report prints an event. A short line is one write, so that a killed process leaves no part of
// one.
func (p *peer) report(e faults.PeerEvent) {
	e.At, e.Peer, e.Life = faults.Clock(), p.name, p.life
	data, err := json.Marshal(e)
	if err == nil {
		_, err = os.Stdout.Write(append(data, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "registrypeer:", err)
		os.Exit(1)
	}
}
