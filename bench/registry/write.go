package main

import (
	"context"
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

func runWrite(ctx context.Context, b *tool.Bench, redis *system.Redis, l length) {
	b.Say("One process with one client of a registry has %d calls under way, each for a service of its own: registers "+
		"instances, beats them one by one, and beats %d instances of each service in calls of %d. Operations divided by the "+
		"processor time of all threads of the server, for %s each; medians of %d rounds, in which the registries take turns.",
		workers, batch, batch, l.Window, l.Rounds)
	b.Say("etcd: a lease for each instance and a key with it; a heartbeat is a keep-alive on a stream that stays open, one "+
		"under way on each of %d streams, or 64 under way on one stream in place of calls of 64. v1: HSET, SADD and ZADD; "+
		"ZADD; ZADD of 64. The hash: HSET and EXPIRE; EXPIRE; 64 of it. The two on Redis use the client that ours uses, "+
		"which pipelines. Theirs are bare commands: they compare no epochs and tell no one.", workers)
	s := servers{redis: redis}
	defer tool.End(s.stop)
	s.startEtcd(ctx, b, l.etcd)
	names := []string{freeslot, v1, expiring}
	if s.etcd != nil {
		names = []string{freeslot, etcd, etcdOnce, v1, expiring}
	}
	measured := make(map[string]rates)
	for _, name := range names {
		measured[name] = make(rates)
	}
	tool.InTurns(b, l.Rounds, names, func(name string, round int) { s.write(ctx, name, round, l, measured[name]) })
	t := result.Table{Title: "For each second of the server's processor", First: "Registry"}
	for _, w := range writes {
		t.Columns = append(t.Columns, result.Columns(w.name, "least and most")...)
	}
	for _, name := range names {
		var row []any
		for _, w := range writes {
			r := measured[name][w.do]
			if len(r) == 0 {
				row = append(row, nil, nil)
				continue
			}
			at := func(q float64) float64 { return measure.FourFigures(measure.Quantile(r, q)) }
			row = append(row, measure.Median(r), result.Figure{at(0), at(1)})
		}
		t.Add(name, row...)
	}
	b.Result.Tables = []result.Table{t}
	b.Say("Published elsewhere, on other machines, and not measured here: Nacos 26,784 registrations/s on three servers of 8 cores.")
	writeTargets(b, measured)
}

func writeTargets(b *tool.Bench, measured map[string]rates) {
	own, peer, once := measured[freeslot], measured[etcd], measured[etcdOnce]
	targets := []struct {
		do, name           string
		limit, againstEtcd float64
	}{
		{"register", writes[2].name, 30_000, 5}, {"beat", writes[0].name, 100_000, 4}, {"beatall", writes[1].name, 250_000, 10},
	}
	for _, t := range targets {
		b.Target(t.name+", for each CPU-second of Redis", result.Number, result.AtLeast, t.limit, own.median(t.do))
	}
	if peer == nil {
		return
	}
	for _, t := range targets {
		b.Target(t.name+", for each CPU-second of the server, against etcd", result.Times, result.AtLeast, t.againstEtcd,
			own.median(t.do)/peer.median(t.do))
		note := "etcd " + measure.Thousands(peer.median(t.do))
		if t.do == "beat" {
			note += "; " + measure.Thousands(once.median(t.do)) + " by KeepAliveOnce"
		}
		b.Note("%s", note)
	}
}

// write is the turn of one registry.
func (s *servers) write(ctx context.Context, name string, round int, l length, into rates) {
	flush(ctx, s.redis)
	c := s.start(ctx, name, 1)
	defer tool.End(c.End)
	r := entrant.Request{Do: "fill", Name: fmt.Sprintf("write-%d", round), Workers: workers, Each: batch}
	ask(ctx, c, r)
	r.Window = l.Window
	for _, w := range writes {
		if name == etcdOnce && w.do != "beat" {
			continue // it is as etcd is
		}
		r.Do = w.do
		m := s.meter(ctx, name)
		a := ask(ctx, c, r)
		used := tool.Must(m.Spent(ctx))
		into[w.do] = append(into[w.do], float64(a.Count)/max(used.Processes, 0.01))
	}
}
