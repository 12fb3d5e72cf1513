package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// Revision is a cell's counter: every announced change of a node takes the next.
type Revision = uint64

// Epoch is one incarnation (boot id) of a node's agent.
type Epoch = string

// ImportEpoch is the epoch of a node that was registered without an agent: it is
// draining until an agent registers.
const ImportEpoch Epoch = "import"

// NewEpoch makes the epoch of one incarnation of an agent.
func NewEpoch() Epoch { return ulid.Make().String() }

// codeSuperseded is what node scripts return instead of a revision for a node of another epoch.
const codeSuperseded = -2

// codeNodeInUse is what scripts return to a gateway for a node that lives under another token.
const codeNodeInUse = -6

// Registration is the answer to Register.
type Registration struct {
	Revision Revision
	// Lost are the jobs of the superseded epoch: they go to their next attempts, or are
	// dead. Empty when the same epoch registers again.
	Lost []string
	// HeartbeatLimit is the silence after which replicas take the node for dead.
	HeartbeatLimit time.Duration
}

// Reaped is what became of a silent node.
type Reaped struct {
	// Gone is true when the node was taken out; else it lives, has another epoch or
	// was gone before.
	Gone bool
	// Jobs are those that it owned: they go to their next attempts, or are dead.
	Jobs []string
}

// Register makes a node known under epoch, or changes its profile. It can be
// repeated; with a new epoch it takes the node over and the jobs of the former
// epoch go to their next attempts, a failure with freeslot.JobErrorNodeLost. Errors: *freeslot.Error for a bad
// profile, else those of Redis.
func (c *Cell) Register(ctx context.Context, node freeslot.Node, epoch Epoch) (Registration, error) {
	if err := freeslot.ValidateName("epoch", epoch); err != nil {
		return Registration{}, err
	}
	return c.register(ctx, "register", node, []string{node.ID, epoch, c.layout.NodeEvents()}, "")
}

// RegisterLinked is Register for a node behind a gateway. It takes over no other epoch than replaces.
// Errors: as Register; ErrSuperseded for a record of another epoch; ErrStaleConnection; ErrNodeInUse.
func (c *Cell) RegisterLinked(ctx context.Context, node freeslot.Node, epoch Epoch, link Link, replaces Epoch) (Registration, error) {
	if err := freeslot.ValidateName("epoch", epoch); err != nil {
		return Registration{}, err
	}
	if replaces != "" {
		if err := freeslot.ValidateName("replaces", replaces); err != nil {
			return Registration{}, err
		}
	}
	text, err := link.encode()
	if err != nil {
		return Registration{}, err
	}
	head := []string{node.ID, epoch, c.layout.NodeEvents()}
	return c.register(ctx, "register", node, head, text, replaces, millis(c.cfg.HeartbeatLimit))
}

// Import registers a node under ImportEpoch, unless it has changed since it was seen: an agent has registered it, was
// heard, or has a job. Then it is left alone, with ErrSuperseded. Other errors: as Register.
func (c *Cell) Import(ctx context.Context, node freeslot.Node, seen NodeState) (Registration, error) {
	epoch := seen.Epoch
	if seen.Gone {
		epoch = ""
	}
	return c.register(ctx, "import", node, []string{node.ID, c.layout.NodeEvents()}, epoch, strconv.FormatInt(seen.LastHeartbeatMS, 10))
}

// register calls register.lua or import.lua, whose arguments begin with head. known is what they
// compare with Redis before they change anything.
func (c *Cell) register(ctx context.Context, script string, node freeslot.Node, head []string, known ...string) (r Registration, err error) {
	if err := node.Validate("node"); err != nil {
		return Registration{}, err
	}
	l := c.layout
	keys := []string{
		l.Node(node.ID), l.Load(node.ID), l.Slots(node.ID), l.Dispatch(node.ID), l.Online(),
		l.Revisions(), l.Version(), l.Finished(), l.Due(), l.Waiting(), l.WaitingVersion(), l.Serves(node.ID), l.Drained(),
		l.Metrics(node.ID),
	}
	pools := slices.Compact(slices.Sorted(slices.Values(node.Pools)))
	for _, pool := range pools {
		keys = append(keys, l.PoolMembers(pool))
	}
	profile := []string{mustJSON(node), strconv.Itoa(node.MaxConcurrency), mustJSON(orEmpty(pools))}
	revision, lost, err := c.changeNode(ctx, script, keys, slices.Concat(head, profile, known, profileArgs(node)))
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	return Registration{Revision: Revision(revision), Lost: lost, HeartbeatLimit: c.cfg.HeartbeatLimit}, nil
}

// profileArgs are the fields of a profile that scripts only store, with their values. Empty lists are
// written as such, so that a re-registration clears what it no longer names.
func profileArgs(n freeslot.Node) []string {
	return []string{
		"capabilities", mustJSON(n.Languages),
		"installed_services", mustJSON(orEmpty(n.Services)),
		"labels", mustJSON(orEmptyMap(n.Labels)),
		"features_supported", mustJSON(orEmptyMap(n.Features)),
	}
}

// Deregister takes the node out of the cell; jobs that it still owns go to their next
// attempts, which does not count as a failure, and are returned. A node that is not registered
// is no error. Errors: *freeslot.Error (invalid_argument), ErrSuperseded, else those of Redis.
func (c *Cell) Deregister(ctx context.Context, node string, epoch Epoch) ([]string, error) {
	if err := validateAgent(node, epoch); err != nil {
		return nil, err
	}
	_, lost, err := c.changeNode(ctx, "deregister", c.leaveKeys(node), c.leaveArgs(node, epoch))
	wrap(&err, "deregister node %s", node)
	return lost, err
}

// Reap takes a node of this epoch out of the cell when it was not heard for longer than
// the heartbeat limit, by Redis' clock; jobs that it owned go to their next attempts, which
// counts as a failure. A node of ImportEpoch is never reaped. Errors: *freeslot.Error
// (invalid_argument), else those of Redis.
func (c *Cell) Reap(ctx context.Context, node string, epoch Epoch) (Reaped, error) {
	if err := validateAgent(node, epoch); err != nil {
		return Reaped{}, err
	}
	revision, jobs, err := c.changeNode(ctx, "reap", c.leaveKeys(node), append(c.leaveArgs(node, epoch), millis(c.cfg.HeartbeatLimit)))
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return Reaped{}, fmt.Errorf("reap node %s: %w", node, err)
	}
	return Reaped{Gone: revision > 0, Jobs: jobs}, nil
}

// Mend puts right what is there for operators: the sets of online nodes and of pools' members, and
// the health of nodes. A call looks at some of them, drawn at random: at most so many nodes, and so
// many members of all sets together. Errors come from Redis.
func (c *Cell) Mend(ctx context.Context, most int) error {
	err := c.runner.Call(ctx, c.scripts["mend"], []string{c.layout.Revisions(), c.layout.Online()}, []string{strconv.Itoa(most)}).Error()
	wrap(&err, "mend the sets of nodes")
	return err
}

// leaveKeys and leaveArgs are what deregister.lua and reap.lua have in common.
func (c *Cell) leaveKeys(node string) []string {
	l := c.layout
	return []string{
		l.Node(node), l.Load(node), l.Slots(node), l.Dispatch(node), l.Online(),
		l.Revisions(), l.Version(), l.Finished(), l.Due(), l.Waiting(), l.WaitingVersion(), l.Serves(node), l.Metrics(node),
	}
}

func (c *Cell) leaveArgs(node string, epoch Epoch) []string {
	return []string{node, epoch, c.layout.NodeEvents(), strconv.Itoa(c.tombstones)}
}

// changeNode calls a script that returns a revision or a code, and the jobs that the node lost.
func (c *Cell) changeNode(ctx context.Context, script string, keys, args []string) (revision int64, lost []string, err error) {
	reply, err := c.runner.Call(ctx, c.scripts[script], keys, args).ToArray()
	if err == nil {
		err = readReply(reply, &revision)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case revision == codeSuperseded:
		return 0, nil, ErrSuperseded
	case revision == codeStaleConnection:
		return 0, nil, ErrStaleConnection
	case revision == codeNodeInUse:
		return 0, nil, ErrNodeInUse
	}
	lost, err = texts(reply[1:])
	return revision, lost, err
}

// texts are values that all are texts; nil for none.
func texts(values []rueidis.RedisMessage) (out []string, err error) {
	for i := range values {
		text, err := values[i].ToString()
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// Drain has the node get no more jobs. That lasts until Undrain, also
// over a stop and start of its agent; what runs there goes on. It can be repeated without
// harm, also after the node has left. Errors: *freeslot.Error (invalid_argument, not_found),
// ErrNotReplicated, else those of Redis.
func (c *Cell) Drain(ctx context.Context, node string) error {
	return c.drain(ctx, node, freeslot.StatusDrained)
}

// Undrain takes Drain back. As Drain; for a node that has left it is also nil where it was not drained, until
// its tombstone is gone.
func (c *Cell) Undrain(ctx context.Context, node string) error {
	return c.drain(ctx, node, freeslot.StatusOnline)
}

func (c *Cell) drain(ctx context.Context, node string, status freeslot.Status) error {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return err
	}
	l := c.layout
	keys := []string{l.Node(node), l.Online(), l.Revisions(), l.Version(), l.Slots(node), l.Drained()}
	isZero := func(r rueidis.RedisResult) bool {
		n, err := r.AsInt64()
		return err == nil && n == 0
	}
	found, err := c.runner.CallConfirmed(ctx, c.scripts["drain"], keys, []string{node, l.NodeEvents(), string(status)}, isZero).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("drain node %s: %w", node, err)
	case found == 0:
		return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "node_id", Message: "there is no node " + node}
	default:
		return nil
	}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// mustJSON encodes values of our own types, which always can be.
func mustJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cell: encode %T: %v", v, err))
	}
	return string(data)
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orEmptyMap[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}
