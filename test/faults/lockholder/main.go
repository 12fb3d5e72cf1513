// Command lockholder takes locks again and again, and uses the registers that they guard. It prints
// each of its operations as a line of JSON, see faults.LockOp.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/lock"
	"github.com/freeslot/freeslot/test/faults"
)

const (
	startLimit = 5 * time.Second
	// workers of each lock.
	workers = 2
	// A short hold is over long before its lease. One in longEvery may outlive it, if renewed.
	shortHold = 30 * time.Millisecond
	longHold  = 3 * faults.LockLease
	longEvery = 8
	// One worker in hastyEvery gives up soon.
	longWait, hastyWait = 3 * time.Second, 60 * time.Millisecond
	hastyEvery          = 4
	// stepPause is how long a holder is busy between two steps.
	stepPause = 10 * time.Millisecond
)

var write = lock.NewFence(`return redis.call('SET', KEYS[1], ARGV[1])`)

func main() {
	url := flag.String("redis", "", "URL of the Redis with the locks")
	register := flag.String("register", "", "URL of the Redis with the registers")
	keys := flag.String("keys", "", "names of the locks, with commas between; those of fair ones begin with fair")
	seed := flag.Uint64("seed", 1, "decides how long locks are held")
	replicas := flag.Int("replicas", 0, "how many replicas must have a grant before it counts")
	flag.Parse()
	if err := run(lock.Options{RedisURL: *url, Replicas: *replicas}, *register, strings.Split(*keys, ","), *seed); err != nil {
		fmt.Fprintln(os.Stderr, "lockholder:", err)
		os.Exit(1)
	}
}

func run(options lock.Options, register string, keys []string, seed uint64) error {
	option, err := rueidis.ParseURL(register)
	if err != nil {
		return err
	}
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	options.Liveness = 300 * time.Millisecond
	m, err := lock.New(options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := m.Start(ctx); err != nil {
		return err
	}
	fmt.Println("lockholder.started")
	var all sync.WaitGroup
	for i, key := range keys {
		l, err := m.Get(lock.Config{
			Key: key, Fair: strings.HasPrefix(key, "fair"), Lease: faults.LockLease, Renewal: faults.LockLease / 2,
			WatchdogPeriod: time.Second,
		})
		if err != nil {
			return err
		}
		for j := range workers {
			number := i*workers + j
			w := worker{client: client, lock: l, key: key, rng: rand.New(rand.NewPCG(seed, uint64(number)))}
			all.Go(func() { w.run(fmt.Sprintf("%d-%d", os.Getpid(), number)) })
		}
	}
	all.Wait() // it never ends
	return nil
}

// worker holds one lock again and again.
type worker struct {
	client rueidis.Client
	lock   *lock.Lock
	key    string
	rng    *rand.Rand
}

// run never ends. name is the worker's own.
func (w *worker) run(name string) {
	for n := 0; ; n++ {
		wait := longWait
		if w.rng.IntN(hastyEvery) == 0 {
			wait = w.below(hastyWait)
		}
		op := faults.LockOp{Kind: faults.Acquire, Key: w.key, Hold: fmt.Sprintf("%s-%d", name, n), Call: now()}
		held, err := w.lock.TryLock(context.Background(), wait)
		if err != nil {
			continue // Redis may be away; that took the time of the wait
		}
		op.Token, op.Return = held.Token(), now()
		op.Live = live(held)
		report(op)
		w.use(held, op)
		_ = held.Unlock(context.Background()) // it may be lost
	}
}

// use writes and reads the register while the lock is held.
func (w *worker) use(held *lock.Held, op faults.LockOp) {
	if err := w.client.Do(context.Background(), w.client.B().Incr().Key("holds:"+w.key).Build()).Error(); err != nil {
		fatal(err)
	}
	limit := shortHold
	if w.rng.IntN(longEvery) == 0 {
		limit = longHold
	}
	end := op.Return + int64(w.below(limit))
	for op.Live = live(held); op.Live != 0; op.Live = live(held) {
		w.write(held, &op)
		w.read(&op)
		if now() >= end {
			return
		}
		select {
		case <-held.Context().Done():
		case <-time.After(w.below(stepPause)):
		}
	}
}

func (w *worker) write(held *lock.Held, op *faults.LockOp) {
	op.Kind, op.N, op.Call, op.Return = faults.Write, op.N+1, now(), 0
	op.Value = fmt.Sprintf("%s/%d", op.Hold, op.N)
	report(*op)
	_, err := write.Run(context.Background(), w.client, "fence:"+w.key, held.Token(), []string{"register:" + w.key}, []string{op.Value})
	if err != nil && !errors.Is(err, lock.ErrStale) {
		fatal(err)
	}
	op.Accepted, op.Return = err == nil, now()
	report(*op)
}

func (w *worker) read(op *faults.LockOp) {
	op.Kind, op.N, op.Call = faults.Read, op.N+1, now()
	value, err := w.client.Do(context.Background(), w.client.B().Get().Key("register:"+w.key).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		fatal(err)
	}
	op.Value, op.Return = value, now()
	report(*op)
}

// below returns a time below d, and at least a millisecond.
func (w *worker) below(d time.Duration) time.Duration {
	return time.Millisecond + time.Duration(w.rng.Int64N(int64(d)))
}

// live returns a moment at which the context was live, 0 if it has ended. A process that was
// stopped in between finds that it has.
func live(held *lock.Held) int64 {
	at := now()
	if held.Context().Err() != nil {
		return 0
	}
	return at
}

func now() int64 { return int64(faults.Clock()) }

// report prints an operation. A line is one write, so that a killed process leaves no part of one.
func report(op faults.LockOp) {
	data, err := json.Marshal(op)
	if err == nil {
		_, err = os.Stdout.Write(append(data, '\n'))
	}
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "lockholder:", err)
	os.Exit(1)
}
