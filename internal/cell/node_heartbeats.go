package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/internal/script"
)

const (
	// maxHeartbeats is the most nodes in one call of heartbeats.lua.
	maxHeartbeats = 32
	// attemptsTogether and resourcesTogether, in bytes, bound what heartbeats of several nodes
	// bring in one call. With more, Redis could take longer than 3 ms.
	attemptsTogether  = 512
	resourcesTogether = 128 << 10
)

// LinkedHeartbeat is a heartbeat that a gateway passes on.
type LinkedHeartbeat struct {
	Heartbeat
	Link Link
}

// HeartbeatResult is the answer to one of several heartbeats. Err is as returned by
// HeartbeatLinked.
type HeartbeatResult struct {
	HeartbeatReply
	Err error
}

// FitHeartbeats returns how many of the first heartbeats one call of HeartbeatsLinked takes: at
// least one.
func FitHeartbeats(beats []LinkedHeartbeat) int {
	attempts, resources := 0, 0
	for i := range beats {
		attempts += len(beats[i].Running)
		resources += len(beats[i].Resources)
		if i > 0 && (i == maxHeartbeats || attempts > attemptsTogether || resources > resourcesTogether) {
			return i
		}
	}
	return len(beats)
}

// HeartbeatLinked is Heartbeat for a node behind a gateway. Errors: as Heartbeat,
// ErrStaleConnection, ErrNodeInUse.
func (c *Cell) HeartbeatLinked(ctx context.Context, hb Heartbeat, link Link) (HeartbeatReply, error) {
	result := c.HeartbeatsLinked(ctx, []LinkedHeartbeat{{hb, link}})[0]
	return result.HeartbeatReply, result.Err
}

// HeartbeatsLinked is HeartbeatLinked for several nodes in one call, at most as many as
// FitHeartbeats allows. Results are in the order of the heartbeats. A heartbeat that cannot be sent
// does not affect the others. If Redis answers the call with an error, each heartbeat is sent
// alone, all at the same time. That happens to most calls while a hash slot migrates, because one
// key that has moved or does not exist is enough.
func (c *Cell) HeartbeatsLinked(ctx context.Context, beats []LinkedHeartbeat) []HeartbeatResult {
	results := make([]HeartbeatResult, len(beats))
	sent, valid := make([]LinkedHeartbeat, 0, len(beats)), make([]int, 0, len(beats))
	for i := range beats {
		if results[i].Err = beats[i].check(); results[i].Err == nil {
			sent, valid = append(sent, beats[i]), append(valid, i)
		}
	}
	answers := c.sendHeartbeats(ctx, sent, c.runner.CallApart)
	for n, i := range valid {
		results[i] = answers[n]
		wrap(&results[i].Err, "heartbeat of node %s", beats[i].Node)
	}
	return results
}

func (hb *LinkedHeartbeat) check() error {
	if err := hb.validate(); err != nil {
		return err
	}
	_, err := hb.Link.encode()
	return err
}

// calling is a runner's CallApart or Call.
type calling func(ctx context.Context, s *script.Script, keys, args []string) rueidis.RedisResult

func (c *Cell) sendHeartbeats(ctx context.Context, beats []LinkedHeartbeat, call calling) []HeartbeatResult {
	if len(beats) == 0 {
		return nil
	}
	results, err := c.heartbeats(ctx, beats, call)
	if err == nil {
		return results
	}
	results = make([]HeartbeatResult, len(beats))
	answer := (*rueidis.RedisError)(nil)
	if len(beats) > 1 && errors.As(err, &answer) {
		var each sync.WaitGroup
		for i := range beats {
			// Call, not CallApart: the latter would take a connection for each heartbeat.
			each.Go(func() { results[i] = c.sendHeartbeats(ctx, beats[i:i+1], c.runner.Call)[0] })
		}
		each.Wait()
		return results
	}
	for i := range results {
		results[i].Err = err
	}
	return results
}

// heartbeats makes one call of heartbeats.lua. It uses CallApart, so that no heartbeat waits behind
// the results of jobs, unless the caller passes another function. After an error nothing is known
// about any of the heartbeats.
func (c *Cell) heartbeats(ctx context.Context, beats []LinkedHeartbeat, call calling) ([]HeartbeatResult, error) {
	l := c.layout
	keys := []string{l.Revisions(), l.Version(), l.Online()}
	args := []string{l.NodeEvents(), strconv.Itoa(len(beats)), millis(c.cfg.HeartbeatLimit)}
	for i := range beats {
		hb := &beats[i]
		link, err := hb.Link.encode()
		if err != nil {
			return nil, err
		}
		keys = append(keys, l.Node(hb.Node), l.Load(hb.Node), l.Slots(hb.Node), l.Load(hb.Node))
		if len(hb.Resources) > 0 {
			keys[len(keys)-1] = l.Metrics(hb.Node)
		}
		args = append(args, hb.Node, hb.Epoch, string(hb.status()), link, hb.Read, string(hb.Resources),
			strconv.Itoa(len(hb.Running)))
		args = hb.appendRunning(args)
	}
	r := script.ReadReply(call(ctx, c.scripts["heartbeats"], keys, args))
	at := r.Number()
	if r.Err == nil && len(r.Values) != len(beats) {
		r.Err = fmt.Errorf("%d answers, expected %d", len(r.Values), len(beats))
	}
	if r.Err != nil {
		return nil, r.Err
	}
	results := make([]HeartbeatResult, len(beats))
	for i := range results {
		results[i].HeartbeatReply, results[i].Err = decodeHeartbeat(r.Values[i])
		results[i].AtMS = at
	}
	return results, nil
}
