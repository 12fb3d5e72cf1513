package cell

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// MaxTake is the most classes that one Take uses.
const MaxTake = 32

// Taken says what a node got by Take.
type Taken struct {
	// Jobs is the number of jobs that began.
	Jobs int
	// Used and MaxConcurrency are the node's values after the call.
	Used           int
	MaxConcurrency int
	// Refusal says why the node gets no jobs at all; "" if it may get some.
	Refusal RefusalReason
	// Superseded is true if the node has another epoch. Then nothing changed.
	Superseded bool
}

// Take gives the node's free slots to waiting jobs of these classes, best class first. It also
// records, under the version of the pools' configuration, that the node serves these classes, so
// that completions on the node hand their slots over by themselves. Classes beyond MaxTake are
// ignored. Errors: *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) Take(ctx context.Context, node string, classes []string, config uint64) (Taken, error) {
	return c.TakeAs(ctx, node, "", classes, config)
}

// TakeAs is Take for a node of this epoch. A node of another epoch gets nothing. "" stands for any
// epoch.
func (c *Cell) TakeAs(
	ctx context.Context, node string, epoch Epoch, classes []string, config uint64,
) (t Taken, err error) {
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
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["take"], keys, args))
	t = Taken{Jobs: int(r.Number()), Used: int(r.Number()), MaxConcurrency: int(r.Number())}
	why := r.Text()
	t.Refusal, t.Superseded = refusalReasons[why], why == "e"
	return t, r.Err
}

// ConfigSeen is ConfigTold for a version without a generation.
func (c *Cell) ConfigSeen(ctx context.Context, version uint64) error {
	_, err := c.ConfigTold(ctx, version, "")
	return err
}

// ConfigTold records the version of the pools' configuration by which nodes are chosen, and the
// generation of its counter ("" for none). The classes that a node was found to serve under another
// version no longer count. It returns false if a newer version of that generation is recorded,
// which then stays. Errors: from Redis.
func (c *Cell) ConfigTold(ctx context.Context, version uint64, generation string) (counts bool, err error) {
	defer wrap(&err, "record version of the configuration")
	keys := []string{c.layout.ServesVersion(), c.layout.ServesGeneration()}
	args := []string{strconv.FormatUint(version, 10), generation}
	n, err := c.runner.Call(ctx, c.scripts["serves"], keys, args).AsInt64()
	return n == 1, err
}

// Served reports whether a replica has ever recorded a version in the cell. Every replica does
// within a second of its start. Errors: from Redis.
func (c *Cell) Served(ctx context.Context) (bool, error) {
	err := c.runner.Do(ctx, "check", c.client.B().Get().Key(c.layout.ServesVersion()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	wrap(&err, "ask whether the cell is served")
	return err == nil, err
}
