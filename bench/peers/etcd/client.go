package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/freeslot/freeslot/bench/registry/entrant"
)

const (
	// leaseSeconds is long, so that only the heartbeats that are measured count.
	leaseSeconds = 3600
	// underWay is how many heartbeats of BeatAll one stream carries at a time.
	underWay = 64
)

// client registers an instance as a key with a lease of its own. A heartbeat is a keep-alive on a
// stream that stays open; each service has one, and so has BeatAll. once opens one for each single
// heartbeat, as KeepAliveOnce does it.
type client struct {
	once    bool
	c       *clientv3.Client
	ctx     context.Context // of streams and watches; ends with Close
	cancel  context.CancelFunc
	watches sync.WaitGroup

	mu      sync.Mutex
	leases  map[string]int64                                   // guarded by mu, as is streams; by key
	streams map[string]etcdserverpb.Lease_LeaseKeepAliveClient // by service; "" is BeatAll's
}

func open(ctx context.Context, addr string, once bool) (*client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: startLimit, Context: context.WithoutCancel(ctx)})
	if err != nil {
		return nil, err
	}
	own := &client{c: c, once: once, leases: make(map[string]int64), streams: make(map[string]etcdserverpb.Lease_LeaseKeepAliveClient)}
	own.ctx, own.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return own, nil
}

func (c *client) Close() error {
	c.cancel()
	c.watches.Wait()
	return c.c.Close()
}

func key(service, id string) string { return "/services/" + service + "/" + id }

func value(service, id, payload string) string {
	return fmt.Sprintf(`{"service":%q,"id":%q,"host":"10.0.0.1","port":8080,"metadata":{"version":"1.0.0","zone":"a","payload":%q}}`, service, id, payload)
}

func (c *client) Register(ctx context.Context, service, id string) error {
	lease, err := c.c.Grant(ctx, leaseSeconds)
	if err != nil {
		return err
	}
	if _, err := c.c.Put(ctx, key(service, id), value(service, id, ""), clientv3.WithLease(lease.ID)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[key(service, id)] = int64(lease.ID)
	return nil
}

// stream is the keep-alives' of a service, and its lease of a key.
func (c *client) stream(service, key string) (etcdserverpb.Lease_LeaseKeepAliveClient, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[service]
	if s == nil {
		var err error
		if s, err = etcdserverpb.NewLeaseClient(c.c.ActiveConnection()).LeaseKeepAlive(c.ctx); err != nil {
			return nil, 0, err
		}
		c.streams[service] = s
	}
	return s, c.leases[key], nil
}

var errExpired = errors.New("a lease has expired")

func receive(s etcdserverpb.Lease_LeaseKeepAliveClient) error {
	answer, err := s.Recv()
	if err == nil && answer.GetTTL() <= 0 {
		err = errExpired
	}
	return err
}

func (c *client) Beat(ctx context.Context, service, id string) error {
	if c.once {
		c.mu.Lock()
		lease := c.leases[key(service, id)]
		c.mu.Unlock()
		_, err := c.c.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
		return err
	}
	s, lease, err := c.stream(service, key(service, id))
	if err != nil {
		return err
	}
	if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: lease}); err != nil {
		return err
	}
	return receive(s)
}

// BeatAll keeps a number of keep-alives on their way, since etcd has no call for many.
func (c *client) BeatAll(context.Context) (int, error) {
	s, _, err := c.stream("", "")
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	leases := make([]int64, 0, len(c.leases))
	for _, lease := range c.leases {
		leases = append(leases, lease)
	}
	c.mu.Unlock()
	window, sent := make(chan struct{}, underWay), make(chan error, 1)
	go func() { // ends with the stream, or when all are sent
		for _, lease := range leases {
			window <- struct{}{}
			if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: lease}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range leases {
		if err := receive(s); err != nil {
			return i, err
		}
		<-window
	}
	return len(leases), <-sent
}

func (c *client) Change(ctx context.Context, service, id, payload string) error {
	c.mu.Lock()
	lease := c.leases[key(service, id)]
	c.mu.Unlock()
	_, err := c.c.Put(ctx, key(service, id), value(service, id, payload), clientv3.WithLease(clientv3.LeaseID(lease)))
	return err
}

func (c *client) Watch(ctx context.Context, service string, see func(payload string)) error {
	events := c.c.Watch(c.ctx, key(service, ""), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	select {
	case created, ok := <-events:
		if err := created.Err(); err != nil || !ok {
			return errors.Join(errors.New("watch"), err)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	c.watches.Go(func() {
		for r := range events {
			for _, e := range r.Events {
				see(payloadOf(e.Kv.Value))
			}
		}
	})
	return nil
}

func payloadOf(value []byte) string {
	var v struct {
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(value, &v) != nil {
		return ""
	}
	return v.Metadata["payload"]
}

var _ entrant.Registry = (*client)(nil)
