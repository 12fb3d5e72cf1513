package cell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Registration is the answer to Register.
type Registration struct {
	Revision Revision
	// Lost lists the jobs of the superseded epoch. They go to their next attempts, or are dead. It
	// is empty if the same epoch registers again.
	Lost []string
	// HeartbeatLimit is how long the node may be silent before replicas take it for dead.
	HeartbeatLimit time.Duration
}

// Reaped says what Reap did with a silent node.
type Reaped struct {
	// Gone is true if the node was removed. Otherwise it lives, has another epoch, or was gone
	// already.
	Gone bool
	// Jobs lists the jobs that it owned. They go to their next attempts, or are dead.
	Jobs []string
}

// Register makes a node known under epoch, or changes its profile. It can be repeated. With a new
// epoch it takes the node over: the jobs of the former epoch go to their next attempts, after a
// failure with freeslot.JobErrorNodeLost. Errors: *freeslot.Error for a bad profile, or from Redis.
func (c *Cell) Register(ctx context.Context, node freeslot.Node, epoch Epoch) (Registration, error) {
	if err := freeslot.ValidateName("epoch", epoch); err != nil {
		return Registration{}, err
	}
	return c.register(ctx, "register", node, []string{node.ID, epoch, c.layout.NodeEvents()}, "")
}

// RegisterLinked is Register for a node behind a gateway. It takes over no epoch except replaces.
// Errors: as Register; ErrSuperseded if the node has another epoch; ErrStaleConnection;
// ErrNodeInUse.
func (c *Cell) RegisterLinked(
	ctx context.Context, node freeslot.Node, epoch Epoch, link Link, replaces Epoch,
) (Registration, error) {
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

// Import registers a node under ImportEpoch. If the node changed since seen was read (an agent
// registered it, it was heard, or it has a job), Import leaves it alone and returns ErrSuperseded.
// Other errors: as Register.
func (c *Cell) Import(ctx context.Context, node freeslot.Node, seen NodeState) (Registration, error) {
	epoch := seen.Epoch
	if seen.Gone {
		epoch = ""
	}
	return c.register(ctx, "import", node, []string{node.ID, c.layout.NodeEvents()}, epoch,
		strconv.FormatInt(seen.LastHeartbeatMS, 10))
}

// register calls register.lua or import.lua. head holds the first arguments of either. known is
// what the script compares with Redis before it changes anything.
func (c *Cell) register(
	ctx context.Context, name string, node freeslot.Node, head []string, known ...string,
) (r Registration, err error) {
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
	revision, lost, err := c.changeNode(ctx, name, keys, slices.Concat(head, profile, known, profileArgs(node)))
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	return Registration{Revision: Revision(revision), Lost: lost, HeartbeatLimit: c.cfg.HeartbeatLimit}, nil
}

// profileArgs returns the fields of a profile that scripts only store, with their values. Empty
// lists are written too, so that a new registration clears what it no longer names.
func profileArgs(n freeslot.Node) []string {
	return []string{
		"capabilities", mustJSON(n.Languages),
		"installed_services", mustJSON(orEmpty(n.Services)),
		"labels", mustJSON(orEmptyMap(n.Labels)),
		"features_supported", mustJSON(orEmptyMap(n.Features)),
	}
}

// Deregister removes the node from the cell. It returns the jobs that the node still owned: they go
// to their next attempts, which does not count as a failure. A node that is not registered is no
// error. Errors: *freeslot.Error (invalid_argument), ErrSuperseded, or from Redis.
func (c *Cell) Deregister(ctx context.Context, node string, epoch Epoch) ([]string, error) {
	if err := validateAgent(node, epoch); err != nil {
		return nil, err
	}
	_, lost, err := c.changeNode(ctx, "deregister", c.leaveKeys(node), c.leaveArgs(node, epoch))
	wrap(&err, "deregister node %s", node)
	return lost, err
}

// Reap removes a node of this epoch that was silent for longer than the heartbeat limit, by Redis'
// clock. The jobs that it owned go to their next attempts, which counts as a failure. A node of
// ImportEpoch is never reaped. Errors: *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) Reap(ctx context.Context, node string, epoch Epoch) (Reaped, error) {
	if err := validateAgent(node, epoch); err != nil {
		return Reaped{}, err
	}
	revision, jobs, err := c.changeNode(ctx, "reap", c.leaveKeys(node),
		append(c.leaveArgs(node, epoch), millis(c.cfg.HeartbeatLimit)))
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return Reaped{}, fmt.Errorf("reap node %s: %w", node, err)
	}
	return Reaped{Gone: revision > 0, Jobs: jobs}, nil
}

// Mend corrects the keys that exist for operators: the sets of online nodes and of pools' members,
// and the health of nodes. A call looks at up to most nodes, and up to most members of all sets
// together, drawn at random. Errors: from Redis.
func (c *Cell) Mend(ctx context.Context, most int) error {
	keys := []string{c.layout.Revisions(), c.layout.Online()}
	err := c.runner.Call(ctx, c.scripts["mend"], keys, []string{strconv.Itoa(most)}).Error()
	wrap(&err, "mend the sets of nodes")
	return err
}

// leaveKeys and leaveArgs return the keys and arguments that deregister.lua and reap.lua share.
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

// changeNode calls a script that returns a revision or a code, followed by the jobs that the node
// lost.
func (c *Cell) changeNode(
	ctx context.Context, name string, keys, args []string,
) (revision int64, lost []string, err error) {
	r := script.ReadReply(c.runner.Call(ctx, c.scripts[name], keys, args))
	revision = r.Number()
	switch {
	case r.Err != nil:
		return 0, nil, r.Err
	case revision == codeSuperseded:
		return 0, nil, ErrSuperseded
	case revision == codeStaleConnection:
		return 0, nil, ErrStaleConnection
	case revision == codeNodeInUse:
		return 0, nil, ErrNodeInUse
	}
	lost = r.Texts()
	return revision, lost, r.Err
}

// Drain stops the node from getting jobs until Undrain, even if its agent restarts. Running jobs go
// on. It can be repeated without harm, also after the node has left. Errors: *freeslot.Error
// (invalid_argument, not_found), ErrNotReplicated, or from Redis.
func (c *Cell) Drain(ctx context.Context, node string) error {
	return c.drain(ctx, node, freeslot.StatusDrained)
}

// Undrain ends a Drain. Errors: as Drain. For a node that has left, it also returns nil if the node
// was not drained, as long as its tombstone exists.
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
	args := []string{node, l.NodeEvents(), string(status)}
	found, err := c.runner.CallConfirmed(ctx, c.scripts["drain"], keys, args, isZero).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("drain node %s: %w", node, err)
	case found == 0:
		return &freeslot.Error{Code: freeslot.CodeNotFound, Field: "node_id", Message: "there is no node " + node}
	default:
		return nil
	}
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

// Drain is [Cell.Drain] in the node's cell.
func (s *Set) Drain(ctx context.Context, node string) error { return s.OfNode(node).Drain(ctx, node) }

// Undrain is [Cell.Undrain] in the node's cell.
func (s *Set) Undrain(ctx context.Context, node string) error {
	return s.OfNode(node).Undrain(ctx, node)
}

// Remove is [Cell.Deregister] in the node's cell, for a node without an agent.
func (s *Set) Remove(ctx context.Context, node string, epoch Epoch) (jobs []string, err error) {
	return s.OfNode(node).Deregister(ctx, node, epoch)
}
