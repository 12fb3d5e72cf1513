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
	// firstShardRetry is shorter than firstRetry, because a sharded subscription starts over after
	// every lost connection.
	firstShardRetry = 5 * time.Millisecond
	// probeLimit bounds the check that a server is the channel's master.
	probeLimit = 500 * time.Millisecond
	// redirections bounds how many nodes are asked one after the other while the nodes of a cluster
	// disagree.
	redirections = 5
)

// receiveShard subscribes at the channel's master and ends with the connection.
//
// The client's own way, a subscription at the node that its map of the slots names, is not enough.
// The map can be out of date. A replica, such as the old master after a failover, accepts
// SSUBSCRIBE too, and messages reach it over the cluster bus, which can lose them without a trace.
// So receiveShard asks the server before the subscription, and again after its confirmation. From
// then on the server itself ends the subscription when it is no longer the master.
func (s *Subscriber) receiveShard() (subscribed bool, err error) {
	node, err := s.findMaster()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	confirmed := make(chan struct{}, 1)
	var check sync.WaitGroup
	defer check.Wait()
	defer cancel(nil)
	check.Go(func() {
		select {
		case <-confirmed:
			if err := s.probe(ctx, node); err != nil {
				cancel(err)
			}
		case <-ctx.Done():
		}
	})
	subscribed, err = s.receiveFrom(
		// A renewed connection needs a new check.
		rueidis.WithOnReceiveReturnHook(ctx, func(err error, _ rueidis.CommandClient) error {
			cancel(err)
			return err
		}),
		node, node.B().Ssubscribe().Channel(s.channel).Build(),
		func() { signal(confirmed) })
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	return subscribed, err
}

// findMaster asks the last known master or any node, and then the node that the answer names.
func (s *Subscriber) findMaster() (rueidis.Client, error) {
	nodes := s.client.Nodes()
	if _, ok := nodes[s.master]; !ok {
		for s.master = range nodes {
			break // any node will do
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
			s.master = "" // try another node next time
			return nil, err
		}
		if s.master, ok = refusal.IsMoved(); !ok {
			return nil, err
		}
	}
	// The client does not know the node. This call makes it learn of the node by its own
	// redirection.
	ctx, cancel := context.WithTimeout(s.ctx, probeLimit)
	defer cancel()
	err := s.client.Do(ctx, s.client.B().Exists().Key(s.channel).Build()).Error()
	return nil, errors.Join(fmt.Errorf("no master of channel %s among %d nodes", s.channel, len(nodes)), err)
}

// probe returns nil if the node is the master of the channel's slot.
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

// fromMaster reports whether the refusal of a read comes from a slot's master: a master that gives
// the slot away still has it, and a lack of permissions does not depend on slots.
func fromMaster(refusal *rueidis.RedisError) bool {
	_, asked := refusal.IsAsk()
	return asked || strings.HasPrefix(refusal.Error(), "NOPERM")
}
