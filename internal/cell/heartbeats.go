package cell

import (
	"context"
	"fmt"
	"strconv"
)

// maxHeartbeats is the most nodes of one call of heartbeats.lua.
const maxHeartbeats = 32

// codeStaleConnection is what scripts return to a gateway whose agent has a later connection.
const codeStaleConnection = -3

// linkedHeartbeat is a heartbeat that a gateway passes on.
type linkedHeartbeat struct {
	Heartbeat
	link Link
}

// heartbeatResult is the answer to one of several heartbeats.
type heartbeatResult struct {
	HeartbeatReply
	err error
}

// HeartbeatLinked is Heartbeat for a node behind a gateway. Errors: as Heartbeat; ErrStaleConnection;
// ErrNodeInUse.
func (c *Cell) HeartbeatLinked(ctx context.Context, hb Heartbeat, link Link) (out HeartbeatReply, err error) {
	defer wrap(&err, "heartbeat of node %s", hb.Node)
	results, err := c.heartbeats(ctx, []linkedHeartbeat{{hb, link}})
	if err != nil {
		return HeartbeatReply{}, err
	}
	return results[0].HeartbeatReply, results[0].err
}

// heartbeats is HeartbeatLinked for up to maxHeartbeats nodes in one call; results are in the order of
// the heartbeats. After an error nothing is known of any of them.
func (c *Cell) heartbeats(ctx context.Context, beats []linkedHeartbeat) ([]heartbeatResult, error) {
	l := c.layout
	keys := []string{l.Revisions(), l.Version(), l.Online()}
	args := []string{l.NodeEvents(), strconv.Itoa(len(beats)), millis(c.cfg.HeartbeatLimit)}
	for i := range beats {
		hb := &beats[i]
		if err := hb.validate(); err != nil {
			return nil, err
		}
		link, err := hb.link.encode()
		if err != nil {
			return nil, err
		}
		keys = append(keys, l.Node(hb.Node), l.Load(hb.Node), l.Slots(hb.Node), l.Load(hb.Node))
		if len(hb.Resources) > 0 {
			keys[len(keys)-1] = l.Metrics(hb.Node)
		}
		args = append(args, hb.Node, hb.Epoch, string(hb.status()), link, hb.Read, string(hb.Resources), strconv.Itoa(len(hb.Running)))
		args = hb.appendRunning(args)
	}
	answers, err := c.runner.Call(ctx, c.scripts["heartbeats"], keys, args).ToArray()
	var at int64
	if err == nil {
		err = readReply(answers, &at)
	}
	if err == nil && len(answers) != len(beats)+1 {
		err = fmt.Errorf("%d answers, expected %d", len(answers)-1, len(beats))
	}
	if err != nil {
		return nil, err
	}
	results := make([]heartbeatResult, len(beats))
	for i := range results {
		results[i].HeartbeatReply, results[i].err = decodeHeartbeat(answers[i+1])
		results[i].AtMS = at
	}
	return results, nil
}
