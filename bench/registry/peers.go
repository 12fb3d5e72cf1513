package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
	redisclient "github.com/freeslot/freeslot/internal/redis/client"
)

// hashExpiry is long, so that only the heartbeats that are measured count.
const hashExpiry = time.Hour

// batch is how many heartbeats of a service go into one call.
const batch = 64

// onRedis is one of the two patterns on Redis that libraries in Go have, on our client:
//
//	v1     a set of ids, a zset of heartbeats and a hash for each instance; a change is published,
//	       and consumers then read the zset and each hash
//	hash   a hash for each instance, which expires unless it is refreshed; no one learns of changes
type onRedis struct {
	v1                   bool
	commands, subscriber rueidis.Client
	ctx                  context.Context // of subscriptions; ends with Close
	cancel               context.CancelFunc
	loops                sync.WaitGroup

	mu       sync.Mutex
	services map[string][]string // guarded by mu; ids
}

func openOnRedis(ctx context.Context, addr string, v1 bool) (_ *onRedis, err error) {
	o := &onRedis{v1: v1, services: make(map[string][]string)}
	cfg := redisclient.Config{URL: "redis://" + addr}
	if o.commands, err = redisclient.Commands(cfg); err != nil {
		return nil, err
	}
	if o.subscriber, err = redisclient.Subscriber(cfg); err != nil {
		o.commands.Close()
		return nil, err
	}
	o.ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return o, nil
}

func (o *onRedis) Close() error {
	o.cancel()
	o.subscriber.Close()
	o.loops.Wait()
	o.commands.Close()
	return nil
}

func hashKey(service, id string) string     { return "services:" + service + ":" + id }
func idsKey(service string) string          { return "service_instances:" + service }
func beatsKey(service string) string        { return "heartbeat:" + service }
func changeChannel(service string) string   { return "service_change:" + service }
func (o *onRedis) b() rueidis.Builder       { return o.commands.B() }
func milliseconds(t time.Time) (ms float64) { return float64(t.UnixMilli()) }

// do sends commands together and waits for all.
func (o *onRedis) do(ctx context.Context, commands ...rueidis.Completed) error {
	for _, r := range o.commands.DoMulti(ctx, commands...) {
		if err := r.Error(); err != nil {
			return err
		}
	}
	return nil
}

func (o *onRedis) content(service, id, payload string) rueidis.Completed {
	metadata := fmt.Sprintf(`{"version":"1.0.0","zone":"a",%q:%q}`, payloadLabel, payload)
	return o.b().Hset().Key(hashKey(service, id)).FieldValue().FieldValue("host", "10.0.0.1").FieldValue("port", "8080").
		FieldValue("healthy", "true").FieldValue("metadata", metadata).FieldValue(payloadLabel, payload).Build()
}

func (o *onRedis) beat(service string, ids ...string) []rueidis.Completed {
	if o.v1 {
		zadd := o.b().Zadd().Key(beatsKey(service)).ScoreMember()
		for _, id := range ids {
			zadd = zadd.ScoreMember(milliseconds(time.Now()), id)
		}
		return []rueidis.Completed{zadd.Build()}
	}
	expires := make([]rueidis.Completed, len(ids))
	for i, id := range ids {
		expires[i] = o.b().Expire().Key(hashKey(service, id)).Seconds(int64(hashExpiry.Seconds())).Build()
	}
	return expires
}

func (o *onRedis) Register(ctx context.Context, service, id string) error {
	o.mu.Lock()
	o.services[service] = append(o.services[service], id)
	o.mu.Unlock()
	commands := append([]rueidis.Completed{o.content(service, id, "")}, o.beat(service, id)...)
	if o.v1 {
		commands = append(commands, o.b().Sadd().Key(idsKey(service)).Member(id).Build())
	}
	return o.do(ctx, commands...)
}

func (o *onRedis) Beat(ctx context.Context, service, id string) error {
	return o.do(ctx, o.beat(service, id)...)
}

// BeatAll sends 16 calls together.
func (o *onRedis) BeatAll(ctx context.Context) (count int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var calls []rueidis.Completed
	for service, ids := range o.services {
		for at := 0; at < len(ids); at += batch {
			part := ids[at:min(at+batch, len(ids))]
			count += len(part)
			calls = append(calls, o.beat(service, part...)...)
		}
	}
	return count, o.do(ctx, calls...)
}

func (o *onRedis) Change(ctx context.Context, service, id, payload string) error {
	publish := o.b().Publish().Channel(changeChannel(service)).Message(id).Build()
	return o.do(ctx, o.content(service, id, payload), publish)
}

// read is how consumers of v1 read a service: the ids that have beaten, then a hash each.
func (o *onRedis) read(ctx context.Context, service string) (out []map[string]string, err error) {
	from := strconv.FormatFloat(milliseconds(time.Now().Add(-hashExpiry)), 'f', 0, 64)
	ids, err := o.commands.Do(ctx, o.b().Zrangebyscore().Key(beatsKey(service)).Min(from).Max("+inf").Build()).AsStrSlice()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		fields, err := o.commands.Do(ctx, o.b().Hgetall().Key(hashKey(service, id)).Build()).AsStrMap()
		if err != nil {
			return nil, err
		}
		out = append(out, fields)
	}
	return out, nil
}

func (o *onRedis) Watch(ctx context.Context, service string, see func(payload string)) error {
	changed := make(chan struct{}, 1)
	stands := measure.Subscribe(o.ctx, &o.loops, o.subscriber, changeChannel(service), func() {
		select {
		case changed <- struct{}{}:
		default: // the reader will see this change, too
		}
	})
	o.loops.Go(func() {
		for {
			select {
			case <-o.ctx.Done():
				return
			case <-changed:
			}
			instances, _ := o.read(o.ctx, service) // a change that is not seen is missed in the count
			for _, fields := range instances {
				if payload := fields[payloadLabel]; payload != "" {
					see(payload)
				}
			}
		}
	})
	select {
	case <-stands:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
