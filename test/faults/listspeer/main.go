// Command listspeer asks name lists for ids without pause, and writes each answer into a log, see
// faults.ListAnswer. It prints the state of each list whenever that changes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/freeslot/freeslot/namelist"
	"github.com/freeslot/freeslot/test/faults"
)

const (
	// deadline bounds checks; it is long enough for a busy machine.
	deadline  = 2 * time.Second
	stopLimit = 5 * time.Second
	// round is the time from one round of checks to the next, and flushEvery from one write of the
	// log to the next.
	round, flushEvery = 10 * time.Millisecond, 100 * time.Millisecond
	// allEvery: one in this many rounds uses CheckAll.
	allEvery = 4
)

func main() {
	p := peer{}
	cfg := namelist.Config{Deadline: deadline}
	flag.StringVar(&cfg.RedisURL, "redis", "", "URL of Redis")
	flag.StringVar(&cfg.URL, "url", "", "of replicas, in place of Redis")
	flag.StringVar(&cfg.Token, "token", "", "that replicas ask for")
	flag.StringVar(&cfg.KeyPrefix, "prefix", "", "of keys")
	flag.StringVar(&cfg.ClientName, "name", "", "of the program")
	flag.Int64Var(&cfg.MaxBytes, "max-bytes", 0, "of memory; 0 is the default")
	flag.StringVar(&cfg.SnapshotDir, "snapshots", "", "folder of snapshots; empty is none")
	flag.StringVar(&p.folder, "answers", "", "folder of the log, which has the name of the process")
	flag.IntVar(&p.rate, "rate", 0, "checks a second of each list")
	flag.StringVar(&p.load, "load", "", "lists that are loaded and not asked, with commas between")
	lists := flag.String("lists", "", "the lists, each as name=members, with commas between")
	flag.Parse()
	fmt.Println() // an earlier process may have been killed within a line
	if err := p.run(cfg, strings.Split(*lists, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "listspeer:", err)
		os.Exit(1)
	}
}

type peer struct {
	folder, load string
	rate         int

	mu  sync.Mutex
	log []byte // guarded by mu; whole answers
}

func (p *peer) run(cfg namelist.Config, lists []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	file, err := os.Create(filepath.Join(p.folder, fmt.Sprintf("%s-%d.answers", cfg.ClientName, os.Getpid())))
	if err != nil {
		return err
	}
	client, err := namelist.Open(cfg)
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	if p.load != "" {
		for name := range strings.SplitSeq(p.load, ",") {
			if err := client.List(name).WaitReady(ctx); err != nil {
				return err
			}
		}
	}
	for i, text := range lists {
		name, number, _ := strings.Cut(text, "=")
		members, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return err
		}
		l := client.List(name)
		l.OnChange(report)
		if err := l.WaitReady(ctx); err != nil {
			return err
		}
		loops.Go(func() { p.ask(ctx, uint8(i), l, faults.ListIDs{Members: uint32(members)}) })
	}
	fmt.Println("listspeer.started")
	for tick := time.NewTicker(flushEvery); ; {
		select {
		case <-tick.C:
			if err := p.flush(file); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	loops.Wait()
	stop, cancelStop := context.WithTimeout(context.Background(), stopLimit)
	defer cancelStop()
	if err := client.Close(stop); err != nil {
		return err
	}
	return p.flush(file)
}

// flush writes the log, in one call: a killed process leaves no part of an answer.
func (p *peer) flush(file *os.File) error {
	p.mu.Lock()
	log := p.log
	p.log = nil
	p.mu.Unlock()
	_, err := file.Write(log)
	return err
}

// ask asks a list until ctx ends.
func (p *peer) ask(ctx context.Context, index uint8, l *namelist.List, ids faults.ListIDs) {
	tick := time.NewTicker(round)
	defer tick.Stop()
	each := max(1, p.rate*int(round)/int(time.Second))
	for n := 0; ; n++ {
		numbers, names := make([]uint32, each), make([]string, each)
		for i := range numbers {
			numbers[i] = ids.Pick(rand.Uint32N)
			names[i] = faults.ListID(numbers[i])
		}
		if n%allEvery == 0 {
			begin := faults.Clock()
			p.answered(index, begin, numbers, l.CheckAll(context.Background(), names))
		} else {
			for i, name := range names {
				begin := faults.Clock()
				p.answered(index, begin, numbers[i:i+1], []namelist.Answer{l.Check(context.Background(), name)})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *peer) answered(index uint8, begin time.Duration, ids []uint32, answers []namelist.Answer) {
	took := faults.Clock() - begin + time.Millisecond // the log cuts it to milliseconds
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range answers {
		answer := faults.ListAnswer{
			At: begin, Took: took, ID: ids[i], Version: uint32(a.Version), Revision: uint32(a.Revision), List: index,
			Verdict: faults.ListVerdict(a.Verdict), Source: uint8(a.Source), Reason: uint8(a.Reason),
		}
		p.log = answer.Append(p.log)
	}
}

// report prints the state of a list.
func report(s namelist.Status) {
	if text, err := json.Marshal(map[string]any{
		"at": faults.Clock(), "list": s.List, "state": s.State, "reason": s.Reason.String(), "version": s.Version, "next": s.Next,
		"blocks": s.Blocks, "loaded": s.Loaded, "stale": s.Stale,
	}); err == nil {
		fmt.Println(string(text))
	}
}
