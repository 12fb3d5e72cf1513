// Command attack runs a replica with three tenants on the loopback, lets one of them, or a
// stranger, try to take everything, and measures how the others fare. It ends with 1 if a victim
// fails.
//
// Each attack is bounded in number and time. docs/security.md tells which bound it meets.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// strikers is the number of attackers at a time, and strikeTime how long they go on at most.
	strikers   = 8
	strikeTime = 20 * time.Second
	// victims is the number of tries of the victim in each attack, victimTime their bound. The victim
	// begins when the attacker has made its tries. The attacker goes on meanwhile, for as many again.
	victims     = 60
	victimTime  = 60 * time.Second
	leastVictim = 0.99
)

// attack is one way to take from others.
type attack struct {
	name string
	// tries is how often strike is called before the victim begins. It reports whether the try was
	// refused.
	tries  int
	strike func(ctx context.Context, s *system, n int) (refused bool)
	victim func(ctx context.Context, s *system, n int) error
	lifted bool // with bounds that the configuration lifts: the victim may fail
}

// outcome counts what happened.
type outcome struct {
	tried, refused, victims, ok int
	p99                         time.Duration
	why                         error // of the last failure of the victim
}

func main() {
	scheduler := flag.String("scheduler", "bin/scheduler", "the program to attack")
	only := flag.String("only", "", "the name of the only attack to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	good, err := runAll(ctx, *scheduler, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

func runAll(ctx context.Context, scheduler, only string) (good bool, err error) {
	good = true
	fmt.Println("| attack | tries | refused | victim tries | victim ok | p99 |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for i := range attacks {
		a := &attacks[i]
		if only != "" && a.name != only {
			continue
		}
		got, err := run(ctx, scheduler, a)
		if err != nil {
			return false, fmt.Errorf("%s: %w", a.name, err)
		}
		share := float64(got.ok) / float64(max(got.victims, 1))
		fmt.Printf("| %s | %d | %d | %d | %.1f %% | %s |\n",
			a.name, got.tried, got.refused, got.victims, 100*share, got.p99.Round(time.Millisecond/10))
		if share < leastVictim && !a.lifted {
			good = false
			fmt.Fprintf(os.Stderr, "attack: %s: the victim fails: %v\n", a.name, got.why)
		}
	}
	return good, nil
}

// run runs one attack against a system of its own.
func run(ctx context.Context, scheduler string, a *attack) (outcome, error) {
	s, err := startSystem(ctx, scheduler, a.lifted)
	if err != nil {
		return outcome{}, err
	}
	defer s.stop()
	var next, tried, refused atomic.Int64
	full := make(chan struct{})
	striking, end := context.WithTimeout(ctx, strikeTime)
	var attackers sync.WaitGroup
	for range strikers {
		attackers.Go(func() {
			for n := int(next.Add(1)); n <= 2*a.tries && striking.Err() == nil; n = int(next.Add(1)) {
				if a.strike(striking, s, n) {
					refused.Add(1)
				}
				if tried.Add(1) == int64(a.tries) {
					close(full)
				}
			}
		})
	}
	select {
	case <-full:
	case <-striking.Done():
	}
	out := suffer(ctx, s, a)
	end()
	attackers.Wait()
	out.tried, out.refused = int(tried.Load()), int(refused.Load())
	return out, ctx.Err()
}

// suffer lets the victim try.
func suffer(ctx context.Context, s *system, a *attack) (out outcome) {
	ctx, cancel := context.WithTimeout(ctx, victimTime)
	defer cancel()
	var took []time.Duration
	for n := range victims {
		begin := time.Now()
		if err := a.victim(ctx, s, n); err != nil {
			out.why = err
		} else {
			out.ok++
		}
		took = append(took, time.Since(begin))
		out.victims++
	}
	slices.Sort(took)
	out.p99 = took[len(took)*99/100]
	return out
}
