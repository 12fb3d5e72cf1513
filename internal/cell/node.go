package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
)

// The codes that node scripts return instead of a revision.
const (
	codeUnknownNode = -1
	codeSuperseded  = -2
)

// Register makes a node known under epoch, or changes its profile. It can be
// repeated; with a new epoch it takes the node over and the jobs of the former
// epoch go to their next attempts, a failure with freeslot.JobErrorNodeLost. Errors: *freeslot.Error for a bad
// profile, else what Redis said.
func (c *Cell) Register(ctx context.Context, node freeslot.Node, epoch Epoch) (Registration, error) {
	if err := freeslot.ValidateName("epoch", epoch); err != nil {
		return Registration{}, err
	}
	return c.register(ctx, "register", node, []string{node.ID, epoch, c.layout.NodeEvents()})
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

// register calls register.lua or import.lua, whose arguments begin with head. seen is what import.lua compares.
func (c *Cell) register(ctx context.Context, script string, node freeslot.Node, head []string, seen ...string) (Registration, error) {
	if err := node.Validate("node"); err != nil {
		return Registration{}, err
	}
	l := c.layout
	keys := []string{
		l.Node(node.ID), l.Load(node.ID), l.Slots(node.ID), l.Dispatch(node.ID), l.Online(),
		l.Revisions(), l.Version(), l.Finished(), l.Due(), l.Waiting(), l.WaitingVersion(), l.Serves(node.ID), l.Drained(),
		l.Metrics(node.ID),
	}
	for _, pool := range node.Pools {
		keys = append(keys, l.PoolMembers(pool))
	}
	pools := slices.Compact(slices.Sorted(slices.Values(node.Pools)))
	args := slices.Concat(head, []string{mustJSON(node), strconv.Itoa(node.MaxConcurrency), mustJSON(orEmpty(pools))}, seen, profileArgs(node))
	reply, err := c.runner.Call(ctx, c.scripts[script], keys, args).ToArray()
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	revision, lost, err := decodeLeave(reply)
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	return Registration{Revision: Revision(revision), Lost: lost, HeartbeatLimit: c.cfg.HeartbeatLimit}, nil
}

// Heartbeat proves that the node lives and runs the ownership check; with resources it tells
// them too. Errors:
// *freeslot.Error (invalid_argument), ErrUnknownNode, ErrSuperseded, else what Redis
// said.
func (c *Cell) Heartbeat(ctx context.Context, hb Heartbeat) (HeartbeatReply, error) {
	if err := hb.validate(); err != nil {
		return HeartbeatReply{}, err
	}
	call := func(read string) (rueidis.RedisMessage, error) {
		return c.runner.Call(ctx, c.scripts["heartbeat"], hb.keys(c.layout), hb.args(c.layout.NodeEvents(), read)).ToMessage()
	}
	reply, err := call(hb.Read)
	if err != nil && hb.Read == "" && strings.HasPrefix(err.Error(), "OOM ") {
		// Nothing was done. With a trim, which frees memory, before them, Redis takes the writes.
		reply, err = call("0-0")
	}
	if err != nil {
		return HeartbeatReply{}, fmt.Errorf("heartbeat of node %s: %w", hb.Node, err)
	}
	out, err := decodeHeartbeat(reply)
	if err != nil {
		return HeartbeatReply{}, fmt.Errorf("heartbeat of node %s: %w", hb.Node, err)
	}
	return out, nil
}

// Deregister takes the node out of the cell; jobs that it still owns go to their next
// attempts, which does not count as a failure, and are returned. A node that is not registered
// is no error. Errors: *freeslot.Error (invalid_argument), ErrSuperseded, else what
// Redis said.
func (c *Cell) Deregister(ctx context.Context, node string, epoch Epoch) ([]string, error) {
	if err := validateAgent(node, epoch); err != nil {
		return nil, err
	}
	reply, err := c.runner.Call(ctx, c.scripts["deregister"], c.leaveKeys(node), c.leaveArgs(node, epoch)).ToArray()
	if err != nil {
		return nil, fmt.Errorf("deregister node %s: %w", node, err)
	}
	_, lost, err := decodeLeave(reply)
	if err != nil {
		return nil, fmt.Errorf("deregister node %s: %w", node, err)
	}
	return lost, nil
}

// Reap takes a node of this epoch out of the cell when it was not heard for longer than
// the heartbeat limit, by Redis' clock; jobs that it owned go to their next attempts, which
// counts as a failure. A node of ImportEpoch is never reaped. Errors: *freeslot.Error
// (invalid_argument), else what Redis said.
func (c *Cell) Reap(ctx context.Context, node string, epoch Epoch) (Reaped, error) {
	if err := validateAgent(node, epoch); err != nil {
		return Reaped{}, err
	}
	args := append(c.leaveArgs(node, epoch), millis(c.cfg.HeartbeatLimit))
	reply, err := c.runner.Call(ctx, c.scripts["reap"], c.leaveKeys(node), args).ToArray()
	if err != nil {
		return Reaped{}, fmt.Errorf("reap node %s: %w", node, err)
	}
	revision, jobs, err := decodeLeave(reply)
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return Reaped{}, fmt.Errorf("reap node %s: %w", node, err)
	}
	return Reaped{Gone: revision > 0, Jobs: jobs}, nil
}

// Drain has the node get no more jobs, on an operator's word that lasts until Undrain, also
// over a stop and start of its agent; what runs there goes on. It can be repeated without
// harm, also after the node has left. Errors: *freeslot.Error (invalid_argument, not_found),
// ErrNotReplicated, else what Redis said.
func (c *Cell) Drain(ctx context.Context, node string) error {
	return c.drain(ctx, node, freeslot.StatusDrained)
}

// Undrain takes Drain back. As Drain; of a node that has left it is also nil where nobody had drained it, until
// that it left is forgotten.
func (c *Cell) Undrain(ctx context.Context, node string) error {
	return c.drain(ctx, node, freeslot.StatusOnline)
}

func (c *Cell) drain(ctx context.Context, node string, status freeslot.Status) error {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return err
	}
	l := c.layout
	keys := []string{l.Node(node), l.Online(), l.Revisions(), l.Version(), l.Slots(node), l.Drained()}
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

// isZero is refused of scripts that return how much they did.
func isZero(r rueidis.RedisResult) bool {
	n, err := r.AsInt64()
	return err == nil && n == 0
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

// profileFieldNames are the fields of the profile hash that changes.lua reads,
// in the order that decodeNode expects.
var profileFieldNames = []string{
	"epoch", "status", "registered_at_ms",
	"max_concurrency", "capabilities", "installed_services", "pool_ids", "labels", "features_supported",
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

// keys are KEYS of heartbeat.lua.
func (hb *Heartbeat) keys(l Layout) []string {
	keys := []string{
		l.Node(hb.Node), l.Load(hb.Node), l.Slots(hb.Node), l.Revisions(), l.Version(), l.Dispatch(hb.Node), l.Online(),
	}
	if len(hb.Resources) > 0 {
		keys = append(keys, l.Metrics(hb.Node))
	}
	return keys
}

// args are ARGV of heartbeat.lua.
func (hb *Heartbeat) args(channel, read string) []string {
	const fixed, needed = 6, 4
	status := hb.Status
	if status == "" {
		status = freeslot.StatusOnline
	}
	args := make([]string, 0, fixed+len(hb.Running))
	args = append(args, hb.Node, hb.Epoch, string(status), channel, read, string(hb.Resources))
	for _, a := range hb.Running {
		args = append(args, a.Job+":"+strconv.Itoa(a.N))
	}
	for len(args) > needed && args[len(args)-1] == "" {
		args = args[:len(args)-1]
	}
	return args
}

// decodeHeartbeat reads what heartbeat.lua returns: a code, the figures as text, or
// the figures and the lists.
func decodeHeartbeat(reply rueidis.RedisMessage) (HeartbeatReply, error) {
	switch {
	case reply.IsInt64():
		return HeartbeatReply{}, heartbeatError(reply)
	case reply.IsArray():
		return decodeHeartbeatLists(reply)
	}
	text, err := reply.ToString()
	if err != nil {
		return HeartbeatReply{}, err
	}
	return parseHeartbeat(text)
}

// parseHeartbeat reads 'revision used', or the revision alone where no slot is in use.
func parseHeartbeat(text string) (out HeartbeatReply, err error) {
	revision, used, some := strings.Cut(text, " ")
	if out.Revision, err = strconv.ParseUint(revision, 10, 64); err != nil {
		return HeartbeatReply{}, fmt.Errorf("revision: %w", err)
	}
	if !some {
		return out, nil
	}
	if out.Used, err = strconv.Atoi(used); err != nil {
		return HeartbeatReply{}, fmt.Errorf("slots in use: %w", err)
	}
	return out, nil
}

func heartbeatError(reply rueidis.RedisMessage) error {
	code, err := reply.AsInt64()
	switch {
	case err != nil:
		return err
	case code == codeUnknownNode:
		return ErrUnknownNode
	case code == codeSuperseded:
		return ErrSuperseded
	default:
		return fmt.Errorf("unknown code %d", code)
	}
}

func decodeHeartbeatLists(reply rueidis.RedisMessage) (out HeartbeatReply, err error) {
	values, err := reply.ToArray()
	if err != nil {
		return out, err
	}
	revision, err := intAt(values, 0)
	if err != nil {
		return out, err
	}
	out.Revision = Revision(revision)
	used, err := intAt(values, 1)
	if err != nil {
		return out, err
	}
	out.Used = int(used)
	for i, list := range []*[]Attempt{&out.Start, &out.Stop, &out.Cancel} {
		if *list, err = attemptsAt(values, 2+i); err != nil {
			return out, err
		}
	}
	return out, nil
}

// decodeLeave reads {revision or code, lost job, ...}.
func decodeLeave(reply []rueidis.RedisMessage) (revision int64, lost []string, err error) {
	if revision, err = intAt(reply, 0); err != nil {
		return 0, nil, err
	}
	if revision == codeSuperseded {
		return 0, nil, ErrSuperseded
	}
	for i := 1; i < len(reply); i++ {
		job, err := reply[i].ToString()
		if err != nil {
			return 0, nil, err
		}
		lost = append(lost, job)
	}
	return revision, lost, nil
}

func attemptsAt(reply []rueidis.RedisMessage, i int) ([]Attempt, error) {
	if i >= len(reply) {
		return nil, fmt.Errorf("reply has %d values, expected more", len(reply))
	}
	held, err := reply[i].AsStrSlice()
	if err != nil {
		return nil, err
	}
	out := make([]Attempt, 0, len(held))
	for _, h := range held {
		a, err := parseAttempt(h)
		if err != nil {
			return nil, err
		}
		// What another release put into the slots is not for this one to run.
		if ValidateJobID("job_id", a.Job) == nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// parseAttempt reads job:attempt, as the heartbeat names it.
func parseAttempt(held string) (Attempt, error) {
	job, n, _ := strings.Cut(held, ":")
	attempt, err := strconv.Atoi(n)
	if err != nil {
		return Attempt{}, fmt.Errorf("attempt %q: %w", held, err)
	}
	return Attempt{Job: job, N: attempt}, nil
}

// intAt reads an integer that Lua returned as such or as a string.
func intAt(reply []rueidis.RedisMessage, i int) (int64, error) {
	if i >= len(reply) {
		return 0, fmt.Errorf("reply has %d values, expected more", len(reply))
	}
	return reply[i].AsInt64()
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
