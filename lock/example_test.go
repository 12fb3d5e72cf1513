package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/lock"
)

// Take a lock, work, and give it back.
func Example() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	m, err := lock.New(lock.Options{RedisURL: url})
	must(err)
	must(m.Start(ctx))
	defer func() { must(m.Stop(ctx)) }()

	l, err := m.Get(lock.Config{Key: "user:profile:1001"})
	must(err)
	held, err := l.Lock(ctx)
	must(err)

	work := held.Context() // ends when the lock is lost
	fmt.Println("may write:", work.Err() == nil, "with a token:", held.Token() > 0)

	must(held.Unlock(ctx))
	fmt.Println("now:", context.Cause(work))
	// Output:
	// may write: true with a token: true
	// now: lock was unlocked
}

// Whoever asks without waiting learns who has the lock.
func ExampleLock_tryLock() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	open := func(holder string) (*lock.Lock, func()) {
		m, err := lock.New(lock.Options{RedisURL: url, Holder: holder})
		must(err)
		must(m.Start(ctx))
		l, err := m.Get(lock.Config{Key: "nightly"})
		must(err)
		return l, func() { must(m.Stop(ctx)) }
	}
	first, stopFirst := open("host-1")
	defer stopFirst()
	second, stopSecond := open("host-2")
	defer stopSecond()

	held, err := first.Lock(ctx)
	must(err)
	_, err = second.TryLock(ctx, 0)
	var busy *lock.HeldError
	if errors.As(err, &busy) {
		fmt.Println("held by", busy.Holder)
	}
	must(held.Unlock(ctx))
	// Output: held by host-1
}

// Run a function with the lock, and enter the lock again inside of it.
func ExampleLock_do() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, err := lock.New(lock.Options{RedisURL: url})
	must(err)
	must(m.Start(ctx))
	defer func() { must(m.Stop(ctx)) }()
	l, err := m.Get(lock.Config{Key: "account:7"})
	must(err)

	err = l.Do(ctx, func(ctx context.Context, outer int64) error {
		return l.Do(ctx, func(_ context.Context, inner int64) error {
			fmt.Println("the same hold:", inner == outer)
			return nil
		})
	})
	must(err)
	// Output: the same hold: true
}

// A resource in Redis refuses a holder that comes too late.
func ExampleFence() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	option, err := rueidis.ParseURL(url)
	must(err)
	client, err := rueidis.NewClient(option)
	must(err)
	defer client.Close()

	write := lock.NewFence(`return redis.call('SET', KEYS[1], ARGV[1])`)
	save := func(token int64, value string) error {
		_, err := write.Run(ctx, client, "{profile:1001}:fence", token, []string{"{profile:1001}"}, []string{value})
		return err
	}
	fmt.Println(save(8, "of the newer holder"))
	fmt.Println(errors.Is(save(7, "of the older one"), lock.ErrStale))
	// Output:
	// <nil>
	// true
}
