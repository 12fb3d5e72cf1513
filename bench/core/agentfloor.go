package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

const (
	publishersMode = "core-publishers"

	floorChannel = "floor"
	// floorBytes is about what the event of a heartbeat has.
	floorBytes    = 96
	floorDeadline = 5 * time.Second
)

func init() { children[publishersMode] = runPublishers }

// runPublishers has count connections publish a message each, as often as agents send heartbeats.
func runPublishers(ctx context.Context, args []string, in *bufio.Reader, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("expected the URL of Redis, a count and an interval")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	interval, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	if _, err := measure.RaiseFiles(fleetFiles); err != nil {
		return err
	}
	clients, errs := make([]rueidis.Client, count), make([]error, count)
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
	}()
	var opening sync.WaitGroup
	for o := range fleetCallers {
		opening.Go(func() {
			for i := o; i < count; i += fleetCallers {
				for try := 0; clients[i] == nil && try < fleetTries; try++ {
					clients[i], errs[i] = redisclient.Agent(redisclient.Config{URL: args[0], Name: "publisher"})
				}
			}
		})
	}
	opening.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	var failed atomic.Int64
	for _, c := range clients {
		publishing.Go(func() {
			next := time.Now().Add(rand.N(interval))
			for measure.SleepUntil(ctx, next) == nil {
				if publish(c) != nil {
					failed.Add(1)
				}
				next = next.Add(interval)
			}
		})
	}
	fmt.Fprintln(out, "ready")
	err = serveLines(in, out, map[string]func() any{"failed": func() any { return failed.Load() }})
	cancel()
	publishing.Wait()
	return err
}

func publish(c rueidis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), floorDeadline)
	defer cancel()
	return c.Do(ctx, c.B().Publish().Channel(floorChannel).Message(strings.Repeat("x", floorBytes)).Build()).Error()
}

// fleetFloor is the share of Redis' main thread that as many connections take which only publish, as many times a second, to as
// many subscribers: what the machine takes for reading, waking and writing, whatever a heartbeat does.
func fleetFloor(ctx context.Context, b *bench, args []string, agents, processes, subscribers int, rate float64, settle, window time.Duration) (cpu, published float64, err error) {
	s, err := b.startRedis(ctx, noAOF, args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	listening, cancel := context.WithCancel(ctx)
	var listeners sync.WaitGroup
	defer listeners.Wait()
	defer cancel()
	for range subscribers {
		c, err := redisclient.Subscriber(redisclient.Config{URL: s.URL(), Name: "listener"})
		if err != nil {
			return 0, 0, err
		}
		listeners.Go(func() {
			defer c.Close()
			_ = c.Receive(listening, c.B().Subscribe().Channel(floorChannel).Build(), func(rueidis.PubSubMessage) {}) // until it is cancelled
		})
	}
	interval := time.Duration(float64(agents) / rate * float64(time.Second))
	all, err := startSideBySide(processes, publishersMode, func(int) []string {
		return []string{s.URL(), strconv.Itoa(agents / processes), interval.String()}
	})
	defer func() { err = errors.Join(err, endAll(all)) }()
	if err != nil {
		return 0, 0, err
	}
	cpu, before, after, err := s.busy(ctx, settle, window)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range all {
		if text, err := c.ask("failed"); err != nil || text != "0" {
			return 0, 0, fmt.Errorf("%s messages were not published: %w", text, err)
		}
	}
	return cpu, after.Rate(before, "publish", window.Seconds()), nil
}

// busy is the share of a core, in percent, that Redis' main thread takes in a window.
func (s *server) busy(ctx context.Context, settle, window time.Duration) (cpu float64, before, after measure.RedisStat, err error) {
	if err = measure.SleepUntil(ctx, time.Now().Add(settle)); err != nil {
		return 0, before, after, err
	}
	if before, err = measure.ReadRedisStat(ctx, s.client); err != nil {
		return 0, before, after, err
	}
	begin := time.Now()
	if err = measure.SleepUntil(ctx, begin.Add(window)); err != nil {
		return 0, before, after, err
	}
	if after, err = measure.ReadRedisStat(ctx, s.client); err != nil {
		return 0, before, after, err
	}
	return (after.CPUSeconds - before.CPUSeconds) / time.Since(begin).Seconds() * 100, before, after, nil
}

// startSideBySide starts so many children; those that were started are returned with an error, too.
func startSideBySide(count int, mode string, args func(i int) []string) ([]*childProcess, error) {
	all, errs := make([]*childProcess, count), make([]error, count)
	var starts sync.WaitGroup
	for i := range count {
		starts.Go(func() { all[i], errs[i] = startReady(mode, args(i)...) })
	}
	starts.Wait()
	var up []*childProcess
	for _, c := range all {
		if c != nil {
			up = append(up, c)
		}
	}
	return up, errors.Join(errs...)
}
