//go:build unix

// Command lock shows why a lock alone does not protect a resource, and how a fencing token does.
//
// Two processes write a record in Redis under one lock. The first looks whether it still has the
// lock, and is stopped right then, as a paused virtual machine would be. Its lease ends, the second
// takes the lock and writes. Then the first wakes up and makes the write that it was about to make.
// The record refuses it, because the second had a higher token:
//
//	redis-server --port 6380 &
//	go run ./examples/lock redis://127.0.0.1:6380
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/lock"
)

const (
	// asFirst makes the program be the first process.
	asFirst = "first"
	// lease is short, so that no one waits long here.
	lease = time.Second
	limit = 30 * time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	switch {
	case len(os.Args) == 2:
		err = second(ctx, os.Args[1], "example-lock", os.Stdout)
	case len(os.Args) == 4 && os.Args[1] == asFirst:
		err = first(ctx, os.Args[2], os.Args[3])
	default:
		err = errors.New("expected the URL of a Redis")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// record is the resource that the lock guards: a value in Redis, which knows the highest token with
// which it was written.
type record struct {
	client rueidis.Client
	name   string
}

var write = lock.NewFence(`return redis.call('SET', KEYS[1], ARGV[1])`)

func (r *record) write(ctx context.Context, token int64, value string) error {
	_, err := write.Run(ctx, r.client, "{"+r.name+"}:fence", token, []string{"{" + r.name + "}"}, []string{value})
	return err
}

func (r *record) read(ctx context.Context) (string, error) {
	return r.client.Do(ctx, r.client.B().Get().Key("{"+r.name+"}").Build()).ToString()
}

// open connects to the record and to its lock.
func open(ctx context.Context, url, prefix string) (r *record, l *lock.Lock, done func(), err error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := lock.New(lock.Options{RedisURL: url, KeyPrefix: prefix})
	if err != nil {
		return nil, nil, nil, err
	}
	if l, err = m.Get(lock.Config{Key: "record", Lease: lease}); err != nil {
		return nil, nil, nil, err
	}
	if err := m.Start(ctx); err != nil {
		return nil, nil, nil, err
	}
	stop := func() { _ = m.Stop(context.WithoutCancel(ctx)) }
	client, err := rueidis.NewClient(option)
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	return &record{client, prefix + ":record"}, l, func() {
		client.Close()
		stop()
	}, nil
}

// first takes the lock, says so, and writes when it reads a line, without another look at its lock.
func first(ctx context.Context, url, prefix string) error {
	r, l, done, err := open(ctx, url, prefix)
	if err != nil {
		return err
	}
	defer done()
	held, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	if err := held.Context().Err(); err != nil { // the look that every holder should take
		return err
	}
	fmt.Println("first: I have the lock and write now")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	err = r.write(ctx, held.Token(), "of the first")
	fmt.Println("first: stale token:", errors.Is(err, lock.ErrStale))
	fmt.Println("first: my lock:", held.Unlock(ctx))
	return nil
}

// second starts the first one, stops it before its write, writes in its place, and lets it go on.
func second(ctx context.Context, url, prefix string, out io.Writer) error {
	r, l, done, err := open(ctx, url, prefix)
	if err != nil {
		return err
	}
	defer done()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	other := exec.CommandContext(ctx, program, asFirst, url, prefix)
	other.Stderr = os.Stderr
	stdin, err := other.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		return err
	}
	if err := other.Start(); err != nil {
		return err
	}
	said := bufio.NewReader(stdout)
	line, err := said.ReadString('\n')
	if err == nil {
		_, _ = io.WriteString(out, line)
		err = other.Process.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		return errors.Join(err, other.Process.Kill(), other.Wait())
	}
	err = l.Do(ctx, func(ctx context.Context, token int64) error { // once the lease of the first is over
		return r.write(ctx, token, "of the second")
	})
	fmt.Fprintln(out, "second: I had the lock and wrote; error:", err)
	_, _ = io.WriteString(stdin, "write\n")
	err = errors.Join(err, other.Process.Signal(syscall.SIGCONT))
	rest, readErr := io.ReadAll(said)
	_, _ = out.Write(rest)
	err = errors.Join(err, readErr, other.Wait())
	value, readErr := r.read(ctx)
	fmt.Fprintln(out, "the record is", strings.TrimSpace(value))
	return errors.Join(err, readErr)
}
