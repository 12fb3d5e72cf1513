package cell

import (
	"context"
	"encoding/json"
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

var (
	failureNodeLost    = mustJSON(freeslot.JobError{Code: freeslot.JobErrorNodeLost, Message: "the node's agent restarted and lost the job"})
	failureInterrupted = mustJSON(freeslot.JobError{Code: freeslot.JobErrorInterrupted, Message: "the node left before the job was done"})
)

// Register makes a node known under epoch, or changes its profile. It can be
// repeated; with a new epoch it takes the node over and the jobs of the former
// epoch end with freeslot.JobErrorNodeLost. Errors: *freeslot.Error for a bad
// profile, else what Redis said.
func (c *Cell) Register(ctx context.Context, node freeslot.Node, epoch Epoch) (Registration, error) {
	if err := node.Validate("node"); err != nil {
		return Registration{}, err
	}
	if err := freeslot.ValidateName("epoch", epoch); err != nil {
		return Registration{}, err
	}
	fields := profileFields(node)
	maxConcurrency := strconv.Itoa(node.MaxConcurrency)
	l := c.layout
	keys := []string{
		l.Node(node.ID), l.Load(node.ID), l.Slots(node.ID), l.Dispatch(node.ID), l.Online(),
		l.Revisions(), l.Heartbeats(), l.Version(), l.Finished(),
	}
	for _, pool := range node.Pools {
		keys = append(keys, l.PoolMembers(pool))
	}
	args := append([]string{
		node.ID, epoch, newGeneration(), l.NodeEvents(), l.Prefix, l.tagPart(), millis(loadTTL), millis(c.cfg.Retention),
		failureNodeLost, maxConcurrency, string(mustJSON(node)),
	}, fields...)
	reply, err := c.exec(ctx, "register", c.scripts.register, keys, args).ToArray()
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	revision, lost, err := decodeLeave(reply)
	if err != nil {
		return Registration{}, fmt.Errorf("register node %s: %w", node.ID, err)
	}
	return Registration{Revision: Revision(revision), Lost: lost, HeartbeatLimit: c.cfg.HeartbeatLimit}, nil
}

// Heartbeat proves that the node lives and runs the ownership check. Errors:
// *freeslot.Error (invalid_argument), ErrUnknownNode, ErrSuperseded, else what Redis
// said.
func (c *Cell) Heartbeat(ctx context.Context, hb Heartbeat) (HeartbeatReply, error) {
	if err := hb.validate(); err != nil {
		return HeartbeatReply{}, err
	}
	l := c.layout
	keys := []string{
		l.Node(hb.Node), l.Load(hb.Node), l.Slots(hb.Node), l.Dispatch(hb.Node),
		l.Revisions(), l.Heartbeats(), l.Version(), l.Online(),
	}
	resources := "{}"
	if len(hb.Resources) > 0 {
		resources = string(hb.Resources)
	}
	status := hb.Status
	if status == "" {
		status = freeslot.StatusOnline
	}
	args := make([]string, 0, 7+len(hb.Running))
	args = append(args, hb.Node, hb.Epoch, string(status), resources, millis(loadTTL), l.NodeEvents(), hb.Read)
	for _, a := range hb.Running {
		args = append(args, a.Job+":"+strconv.Itoa(a.N))
	}
	reply, err := c.exec(ctx, "heartbeat", c.scripts.heartbeat, keys, args).ToArray()
	if err != nil {
		return HeartbeatReply{}, fmt.Errorf("heartbeat of node %s: %w", hb.Node, err)
	}
	out, err := decodeHeartbeat(reply)
	if err != nil {
		return HeartbeatReply{}, fmt.Errorf("heartbeat of node %s: %w", hb.Node, err)
	}
	return out, nil
}

// Deregister takes the node out of the cell; jobs that it still owns end with
// freeslot.JobErrorInterrupted and are returned. A node that is not registered
// is no error. Errors: *freeslot.Error (invalid_argument), ErrSuperseded, else what
// Redis said.
func (c *Cell) Deregister(ctx context.Context, node string, epoch Epoch) ([]string, error) {
	if err := validateAgent(node, epoch); err != nil {
		return nil, err
	}
	l := c.layout
	keys := []string{
		l.Node(node), l.Load(node), l.Slots(node), l.Dispatch(node), l.Online(),
		l.Revisions(), l.Heartbeats(), l.Version(), l.Finished(),
	}
	args := []string{
		node, epoch, l.NodeEvents(), l.Prefix, l.tagPart(), millis(c.cfg.Retention), failureInterrupted,
		strconv.Itoa(c.tombstones),
	}
	reply, err := c.exec(ctx, "deregister", c.scripts.deregister, keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("deregister node %s: %w", node, err)
	}
	_, lost, err := decodeLeave(reply)
	if err != nil {
		return nil, fmt.Errorf("deregister node %s: %w", node, err)
	}
	return lost, nil
}

// profileFieldNames are the fields of the profile hash that changes.lua reads,
// in the order that decodeNode expects.
var profileFieldNames = []string{
	"epoch", "status", "registered_at_ms",
	"max_concurrency", "capabilities", "installed_services", "pool_ids", "labels", "features_supported",
}

// profileFields are the fields that an agent states, in pairs; empty lists are
// written as such, so that a re-registration clears what it no longer names.
func profileFields(n freeslot.Node) []string {
	return []string{
		"node_id", n.ID,
		"health", "Online",
		"max_concurrency", strconv.Itoa(n.MaxConcurrency),
		"capabilities", mustJSON(n.Languages),
		"installed_services", mustJSON(orEmpty(n.Services)),
		"pool_ids", mustJSON(orEmpty(slices.Compact(slices.Sorted(slices.Values(n.Pools))))),
		"labels", mustJSON(orEmptyMap(n.Labels)),
		"features_supported", mustJSON(orEmptyMap(n.Features)),
	}
}

func decodeHeartbeat(reply []rueidis.RedisMessage) (HeartbeatReply, error) {
	code, err := intAt(reply, 0)
	if err != nil {
		return HeartbeatReply{}, err
	}
	switch code {
	case codeUnknownNode:
		return HeartbeatReply{}, ErrUnknownNode
	case codeSuperseded:
		return HeartbeatReply{}, ErrSuperseded
	case 1:
	default:
		return HeartbeatReply{}, fmt.Errorf("unknown code %d", code)
	}
	var out HeartbeatReply
	revision, err := intAt(reply, 1)
	if err != nil {
		return out, err
	}
	out.Revision = Revision(revision)
	used, err := intAt(reply, 2)
	if err != nil {
		return out, err
	}
	out.Used = int(used)
	for i, list := range []*[]Attempt{&out.Start, &out.Stop, &out.Cancel} {
		if *list, err = attemptsAt(reply, 3+i); err != nil {
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
