package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/system"
	"github.com/freeslot/freeslot/bench/tool"
)

// workers is how many calls are under way at a time, each for a service of its own.
const workers = 64

// writes are the measured kinds of work. They are done in this order, by one client.
var writes = []struct{ do, name string }{
	{"beat", "single heartbeats"},
	{"beatall", "heartbeats in calls of 64"},
	{"register", "registrations"},
}

// rates are of the rounds, by the kind of work: for each second of the server's processor.
type rates map[string][]float64

func (r rates) median(do string) float64 { return measure.Median(r[do]) }

func runWrite(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) (err error) {
	b.Say("One process with one client of a registry has %d calls under way, each for a service of its own: registers instances, beats them one by one, and beats %d instances of each service in calls of %d. Operations divided by the processor time of all threads of the server, for %s each; medians of %d rounds, in which the registries take turns.", workers, batch, batch, l.window, l.rounds)
	b.Say("etcd: a lease for each instance and a key with it; a heartbeat is a keep-alive on a stream that stays open, one under way on each of %d streams, or 64 under way on one stream in place of calls of 64. v1: HSET, SADD and ZADD; ZADD; ZADD of 64. The hash: HSET and EXPIRE; EXPIRE; 64 of it. The two on Redis use the client that ours uses, which pipelines. Theirs are bare commands: they compare no epochs and tell no one.", workers)
	s := servers{redis: redis}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.startEtcd(ctx, b, l.etcd); err != nil {
		return err
	}
	names := []string{freeslot, v1, expiring}
	if s.etcd != nil {
		names = []string{freeslot, etcd, etcdOnce, v1, expiring}
	}
	measured := make(map[string]rates)
	for _, name := range names {
		measured[name] = make(rates)
	}
	for round := range l.rounds {
		for i := range names {
			name := names[(i+round)%len(names)]
			if err := s.write(ctx, name, round, l, measured[name]); err != nil {
				return err
			}
		}
		b.Progress("round %d of %d", round+1, l.rounds)
	}
	t := result.Table{Title: "For each second of the server's processor", First: "Registry"}
	for _, w := range writes {
		t.Columns = append(t.Columns, result.Column{Name: w.name}, result.Column{Name: "least and most"})
	}
	for _, name := range names {
		row := result.Row{Name: name}
		for _, w := range writes {
			r := measured[name][w.do]
			if len(r) == 0 {
				row.Figures = append(row.Figures, nil, nil)
				continue
			}
			at := func(q float64) float64 { return measure.FourFigures(measure.Quantile(r, q)) }
			row.Figures = append(row.Figures, result.Figure{measure.FourFigures(measure.Median(r))}, result.Figure{at(0), at(1)})
		}
		t.Rows = append(t.Rows, row)
	}
	b.Result.Tables = []result.Table{t}
	b.Say("Published elsewhere, on other machines, and not measured here: Nacos 26,784 registrations/s on three servers of 8 cores.")
	own, peer := measured[freeslot], measured[etcd]
	for _, target := range []struct {
		do    string
		limit float64
	}{{"register", 30_000}, {"beat", 100_000}, {"beatall", 250_000}} {
		b.Target(nameOf(target.do)+", for each CPU-second of Redis", result.Number, result.AtLeast, target.limit, own.median(target.do))
	}
	if peer == nil {
		return nil
	}
	for _, target := range []struct {
		do    string
		limit float64
	}{{"register", 5}, {"beat", 4}, {"beatall", 10}} {
		b.Target(nameOf(target.do)+", for each CPU-second of the server, against etcd", result.Times, result.AtLeast, target.limit, own.median(target.do)/peer.median(target.do))
		note(b, fmt.Sprintf("etcd %s", measure.Thousands(peer.median(target.do))))
		if target.do == "beat" {
			note(b, fmt.Sprintf("etcd %s; %s by KeepAliveOnce", measure.Thousands(peer.median(target.do)), measure.Thousands(measured[etcdOnce].median(target.do))))
		}
	}
	return nil
}

func nameOf(do string) string {
	for _, w := range writes {
		if w.do == do {
			return w.name
		}
	}
	return do
}

// write is the turn of one registry.
func (s *servers) write(ctx context.Context, name string, round int, l length, into rates) (err error) {
	if err := flush(ctx, s.redis); err != nil {
		return err
	}
	c, err := s.start(ctx, name, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	r := entrant.Request{Do: "fill", Name: fmt.Sprintf("write-%d", round), Workers: workers, Each: batch}
	if _, err := ask(ctx, c, r); err != nil {
		return err
	}
	r.Window = l.window
	for _, w := range writes {
		if name == etcdOnce && w.do != "beat" {
			continue // it is as etcd is
		}
		r.Do = w.do
		before, err := s.cpu(name)
		if err != nil {
			return err
		}
		a, err := ask(ctx, c, r)
		if err != nil {
			return err
		}
		after, err := s.cpu(name)
		if err != nil {
			return err
		}
		into[w.do] = append(into[w.do], float64(a.Count)/max(after-before, 0.01))
	}
	return nil
}
