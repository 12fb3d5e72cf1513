package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// firstShardRetry is shorter than firstRetry, as a sharded subscription begins
	// anew after every lost connection.
	firstShardRetry = 5 * time.Millisecond
	// probeLimit bounds the question whether a server is the channel's master.
	probeLimit = 500 * time.Millisecond
	// redirections bounds the masters that are named one after the other while the
	// nodes of a cluster disagree.
	redirections = 5
)

// receiveShard subscribes at the channel's master and ends with the connection.
//
// The client's own way, a subscription at the node that its map of the slots names,
// is not good enough: the map can be out of date, and a replica, such as the old
// master after a failover, accepts SSUBSCRIBE too. Messages reach it over the
// cluster bus, which loses them silently. So the server is asked, before and again
// once the subscription stands; from then on it says itself when it is master no more.
func (s *Subscriber) receiveShard() (subscribed bool, err error) {
	node, err := s.findMaster()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	stands := make(chan struct{}, 1)
	var check sync.WaitGroup
	defer check.Wait()
	defer cancel(nil)
	check.Go(func() {
		select {
		case <-stands:
			if err := s.probe(ctx, node); err != nil {
				cancel(err)
			}
		case <-ctx.Done():
		}
	})
	subscribed, err = s.receiveFrom(
		// Whoever renews the connection must ask again.
		rueidis.WithOnReceiveReturnHook(ctx, func(err error, _ rueidis.CommandClient) error {
			cancel(err)
			return err
		}),
		node, node.B().Ssubscribe().Channel(s.channel).Build(),
		func() {
			select {
			case stands <- struct{}{}:
			default:
			}
		})
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	return subscribed, err
}

// findMaster asks the node that was the master last, or any, and whom that names.
func (s *Subscriber) findMaster() (rueidis.Client, error) {
	nodes := s.client.Nodes()
	if _, ok := nodes[s.master]; !ok {
		for s.master = range nodes {
			break // the order of a map is as good as any
		}
	}
	for range redirections {
		node, ok := nodes[s.master]
		if !ok {
			break
		}
		err := s.probe(s.ctx, node)
		if err == nil {
			return node, nil
		}
		var refusal *rueidis.RedisError
		if !errors.As(err, &refusal) {
			s.master = "" // another one next time
			return nil, err
		}
		if s.master, ok = refusal.IsMoved(); !ok {
			return nil, err
		}
	}
	// A node that the client does not know: it learns of it by its own redirection.
	ctx, cancel := context.WithTimeout(s.ctx, probeLimit)
	defer cancel()
	err := s.client.Do(ctx, s.client.B().Exists().Key(s.channel).Build()).Error()
	return nil, errors.Join(fmt.Errorf("no master of channel %s among %d nodes", s.channel, len(nodes)), err)
}

// probe returns nil when the node is the master of the channel's slot.
func (s *Subscriber) probe(ctx context.Context, node rueidis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := node.Do(ctx, node.B().Exists().Key(s.channel).Build()).Error()
	var refusal *rueidis.RedisError
	if errors.As(err, &refusal) && fromMaster(refusal) {
		return nil
	}
	return err
}

// fromMaster tells whether the refusal of a read comes from a slot's master: one
// that gives the slot away still has it, and permissions are no matter of slots.
func fromMaster(refusal *rueidis.RedisError) bool {
	_, asked := refusal.IsAsk()
	return asked || strings.HasPrefix(refusal.Error(), "NOPERM")
}
