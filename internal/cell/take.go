package cell

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// MaxTake is the most classes that one Take heeds.
const MaxTake = 32

// Taken is what a node got by Take.
type Taken struct {
	// Jobs is the number of jobs that began.
	Jobs int
	// Used and MaxConcurrency are the node's after the call.
	Used           int
	MaxConcurrency int
	// Refusal is why the node gets no jobs at all; "" where it may.
	Refusal RefusalReason
	// Superseded is true when the node has another epoch: nothing was looked at.
	Superseded bool
}

// Take gives the node's free slots to jobs that wait in these classes, the best first, and
// remembers under the version of the pools' configuration that the node serves them:
// completions on it then hand their slots over by themselves. At most MaxTake classes are
// heeded. Errors: *freeslot.Error (invalid_argument), else those of Redis.
func (c *Cell) Take(ctx context.Context, node string, classes []string, config uint64) (Taken, error) {
	return c.TakeAs(ctx, node, "", classes, config)
}

// TakeAs is Take for a node of this epoch; one of another epoch gets nothing. "" is any.
func (c *Cell) TakeAs(ctx context.Context, node string, epoch Epoch, classes []string, config uint64) (t Taken, err error) {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return Taken{}, err
	}
	defer wrap(&err, "take for node %s", node)
	l := c.layout
	keys := []string{
		l.Revisions(), l.Version(), l.Waiting(), l.WaitingVersion(),
		l.Node(node), l.Slots(node), l.Dispatch(node), l.Load(node), l.Serves(node), l.ServesVersion(),
	}
	args := append([]string{l.NodeEvents(), millis(c.cfg.HeartbeatLimit), node, epoch, strconv.FormatUint(config, 10)},
		classes[:min(len(classes), MaxTake)]...)
	reply, err := c.runner.Call(ctx, c.scripts["take"], keys, args).ToArray()
	if err != nil {
		return Taken{}, err
	}
	var why string
	err = readReply(reply, &t.Jobs, &t.Used, &t.MaxConcurrency, &why)
	t.Refusal, t.Superseded = refusalReasons[why], why == "e"
	return t, err
}

// ConfigSeen is ConfigTold of a version without a generation.
func (c *Cell) ConfigSeen(ctx context.Context, version uint64) error {
	_, err := c.ConfigTold(ctx, version, "")
	return err
}

// ConfigTold records the version of the pools' configuration that nodes are chosen by, and the generation of its
// counter, "" for none: what nodes were found to serve under another one no longer counts. It returns false where a
// newer version of that generation is recorded, which goes on to count. Errors: those of Redis.
func (c *Cell) ConfigTold(ctx context.Context, version uint64, generation string) (counts bool, err error) {
	defer wrap(&err, "record version of the configuration")
	keys := []string{c.layout.ServesVersion(), c.layout.ServesGeneration()}
	n, err := c.runner.Call(ctx, c.scripts["serves"], keys, []string{strconv.FormatUint(version, 10), generation}).AsInt64()
	return n == 1, err
}

// Served reports whether a replica has ever recorded a version in the cell, which all do within a second of their
// start. Errors: those of Redis.
func (c *Cell) Served(ctx context.Context) (bool, error) {
	err := c.runner.Do(ctx, "check", c.client.B().Get().Key(c.layout.ServesVersion()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	wrap(&err, "ask whether the cell is served")
	return err == nil, err
}
