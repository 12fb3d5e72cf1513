package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// maxResources bounds the resources in a heartbeat, because every replica gets them each time.
const maxResources = 16 << 10

// Heartbeat is a heartbeat of an agent.
type Heartbeat struct {
	Node   string
	Epoch  Epoch
	Status freeslot.Status
	// Resources holds the node's figures as a JSON object. If it is nil or empty, the heartbeat is
	// only a sign of life, and the last figures stay in force. After Register under a new epoch, or
	// if the node was unknown, no figures are in force until the next ones come.
	Resources json.RawMessage
	// Running lists the attempts that the agent holds. That includes finished ones whose completion
	// is not acknowledged yet.
	Running []Attempt
	// Read is the id of the last dispatch entry that the agent has processed; older ones are
	// trimmed. Empty means none.
	Read string
	// Now is true if a caller waits for this heartbeat. It then does not wait to share a call.
	Now bool
}

// HeartbeatReply is the answer to a heartbeat.
type HeartbeatReply struct {
	// AtMS is the time at which Redis processed it. Only HeartbeatLinked sets it.
	AtMS int64
	// Revision is the revision of the event that told of it; 0 if it was quiet.
	Revision Revision
	Used     int
	// Start lists attempts that the node owns and did not name.
	Start []Attempt
	// Stop lists attempts that it named and does not own.
	Stop []Attempt
	// Cancel lists attempts that it owns and that are being cancelled.
	Cancel []Attempt
}

// Heartbeat proves that the node lives, and runs the ownership check. It may bring resources.
// Errors: *freeslot.Error (invalid_argument), ErrUnknownNode, ErrSuperseded, or from Redis.
func (c *Cell) Heartbeat(ctx context.Context, hb Heartbeat) (out HeartbeatReply, err error) {
	if err := hb.validate(); err != nil {
		return HeartbeatReply{}, err
	}
	defer wrap(&err, "heartbeat of node %s", hb.Node)
	call := func(read string) (rueidis.RedisMessage, error) {
		return c.runner.Call(ctx, c.scripts["heartbeat"], hb.keys(c.layout), hb.args(c.layout.NodeEvents(), read)).ToMessage()
	}
	reply, err := call(hb.Read)
	if err != nil && hb.Read == "" && strings.HasPrefix(err.Error(), "OOM ") {
		// Nothing was done. A trim frees memory; after it Redis accepts the writes that follow.
		reply, err = call("0-0")
	}
	if err != nil {
		return HeartbeatReply{}, err
	}
	return decodeHeartbeat(reply)
}

func (hb *Heartbeat) validate() error {
	if err := validateAgent(hb.Node, hb.Epoch); err != nil {
		return err
	}
	switch {
	case hb.Status != "" && hb.Status != freeslot.StatusOnline && hb.Status != freeslot.StatusDraining:
		return freeslot.Invalid("status", "is %q, expected online or draining", hb.Status)
	case len(hb.Resources) > maxResources:
		return freeslot.Invalid("resources", "has %d bytes, expected at most %d", len(hb.Resources), maxResources)
	case len(hb.Resources) > 0 && !json.Valid(hb.Resources):
		return freeslot.Invalid("resources", "is not valid JSON")
	case hb.Read != "" && !isStreamID(hb.Read):
		return freeslot.Invalid("read", "is %q, which is not the id of a stream entry", hb.Read)
	}
	for i := range hb.Running {
		if err := ValidateJobID("running", hb.Running[i].Job); err != nil {
			return err
		}
	}
	return nil
}

// keys returns KEYS of heartbeat.lua.
func (hb *Heartbeat) keys(l Layout) []string {
	keys := []string{
		l.Node(hb.Node), l.Load(hb.Node), l.Slots(hb.Node), l.Revisions(), l.Version(), l.Dispatch(hb.Node), l.Online(),
	}
	if len(hb.Resources) > 0 {
		keys = append(keys, l.Metrics(hb.Node))
	}
	return keys
}

// args returns ARGV of heartbeat.lua.
func (hb *Heartbeat) args(channel, read string) []string {
	const needed = 4
	args := hb.appendRunning([]string{hb.Node, hb.Epoch, string(hb.status()), channel, read, string(hb.Resources)})
	for len(args) > needed && args[len(args)-1] == "" {
		args = args[:len(args)-1]
	}
	return args
}

func (hb *Heartbeat) status() freeslot.Status { return cmp.Or(hb.Status, freeslot.StatusOnline) }

// appendRunning appends the attempts in the form that scripts use.
func (hb *Heartbeat) appendRunning(args []string) []string {
	for _, a := range hb.Running {
		args = append(args, a.Job+":"+strconv.Itoa(a.N))
	}
	return args
}

// decodeHeartbeat reads the answer of heartbeat.lua: a code, or the figures as text, or the figures
// and the lists.
func decodeHeartbeat(reply rueidis.RedisMessage) (out HeartbeatReply, err error) {
	switch {
	case reply.IsInt64():
		return out, heartbeatError(reply)
	case reply.IsArray():
		return decodeHeartbeatLists(reply)
	}
	text, err := reply.ToString()
	if err != nil {
		return out, err
	}
	return parseHeartbeat(text)
}

// parseHeartbeat reads 'revision used', or the revision alone if no slot is in use.
func parseHeartbeat(text string) (out HeartbeatReply, err error) {
	revision, used, some := strings.Cut(text, " ")
	if out.Revision, err = strconv.ParseUint(revision, 10, 64); err == nil && some {
		out.Used, err = strconv.Atoi(used)
	}
	if err != nil {
		return HeartbeatReply{}, fmt.Errorf("revision and slots in use: %w", err)
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
	case code == codeStaleConnection:
		return ErrStaleConnection
	case code == codeNodeInUse:
		return ErrNodeInUse
	default:
		return fmt.Errorf("unknown code %d", code)
	}
}

func decodeHeartbeatLists(reply rueidis.RedisMessage) (out HeartbeatReply, err error) {
	r := script.ReadReply(&reply)
	out.Revision, out.Used = Revision(r.Number()), int(r.Number())
	if r.Err == nil && len(r.Values) != 3 {
		r.Err = errors.New("expected three lists")
	}
	if r.Err != nil {
		return out, r.Err
	}
	for i, list := range []*[]Attempt{&out.Start, &out.Stop, &out.Cancel} {
		held, err := r.Values[i].AsStrSlice()
		if err != nil {
			return out, err
		}
		for _, h := range held {
			a, err := parseAttempt(h)
			if err != nil {
				return out, err
			}
			// This release must not run an attempt that another release put into the slots.
			if ValidateJobID("job_id", a.Job) == nil {
				*list = append(*list, a)
			}
		}
	}
	return out, nil
}

// parseAttempt reads job:attempt, the form that heartbeats use.
func parseAttempt(held string) (Attempt, error) {
	job, n, _ := strings.Cut(held, ":")
	attempt, err := strconv.Atoi(n)
	if err != nil {
		return Attempt{}, fmt.Errorf("attempt %q: %w", held, err)
	}
	return Attempt{Job: job, N: attempt}, nil
}

// isStreamID accepts only the long form, which Redis itself uses.
func isStreamID(id string) bool {
	ms, seq, ok := strings.Cut(id, "-")
	return ok && isDigits(ms) && isDigits(seq)
}

func isDigits(s string) bool {
	const longest = 20 // digits of a 64-bit number
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}
