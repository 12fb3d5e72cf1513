package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell/profile"
)

// NodeState is a node as Redis has it.
type NodeState struct {
	// Node is in its normal form. Its lists and maps may be those of other nodes too: they
	// must not be changed.
	Node   freeslot.Node
	Epoch  Epoch
	Status freeslot.Status
	Used   int
	// Resources are what the node said last of its machine; nil when it said nothing yet,
	// or what is no JSON.
	Resources       json.RawMessage
	Revision        Revision
	RegisteredAtMS  int64
	LastHeartbeatMS int64
	// Gone is true for a tombstone: the node left at Revision; only Node.ID is set.
	Gone bool
	// Lost is true for a node that is gone although no script took it out: Redis has lost it.
	Lost bool
	// Broken says which fields of the profile cannot be read or are not valid; they are
	// empty, and the node fits no job.
	Broken error
}

// Changes is one page of what changed since a revision.
type Changes struct {
	// Generation is the random name of this revision counter; it differs after
	// the counter was lost.
	Generation string
	// GenerationAtMS is when the counter began, by Redis' clock, or, later, when its server was
	// first seen with another history (see History). 0 where an older release began it, or where
	// there is none.
	GenerationAtMS int64
	// Revision is the cell's at the time of the call.
	Revision Revision
	// NowMS is Redis' clock.
	NowMS int64
	Nodes []NodeState
	// More is true when the page was full: ask again since Next.
	More bool
	Next Revision
	// Incomplete is true when tombstones newer than since have been dropped:
	// only a replacing load will do.
	Incomplete bool
}

// profileFieldNames are the fields of the profile hash that changes.lua and nodes.lua read,
// in the order that decodeNode expects.
var profileFieldNames = []string{
	"epoch", "status", "registered_at_ms",
	"max_concurrency", "capabilities", "installed_services", "pool_ids", "labels", "features_supported",
}

// Changes reads the nodes that changed after since, oldest change first, up to
// limit of them, 1 at least. since 0 reads every node.
func (c *Cell) Changes(ctx context.Context, since Revision, limit int) (out Changes, err error) {
	defer wrap(&err, "changes since %d", since)
	keys := []string{c.layout.Version(), c.layout.Revisions()}
	args := append([]string{strconv.FormatUint(since, 10), strconv.Itoa(max(limit, 1))}, profileFieldNames...)
	reply, err := c.runner.Call(ctx, c.scripts["changes"], keys, args).ToArray()
	if err != nil {
		return Changes{}, err
	}
	var floor Revision
	var more int
	if err = readReply(reply, &out.Generation, &out.GenerationAtMS, &out.Revision, &out.NowMS, &floor, &more); err != nil {
		return Changes{}, err
	}
	out.Incomplete, out.More, out.Next = since > 0 && since < floor, more == 1, out.Revision
	if out.Nodes, err = c.decodeNodes(reply[6:], out.More); err != nil {
		return Changes{}, err
	}
	if out.More {
		out.Next = out.Nodes[len(out.Nodes)-1].Revision
	}
	return out, nil
}

// Nodes reads the nodes with these valid ids; one without a profile is Gone. In the
// answer Revision and NowMS are the cell's at that time, and a node's Revision is
// that of its last announced change, 0 when there is none.
func (c *Cell) Nodes(ctx context.Context, ids []string) (out Changes, err error) {
	defer wrap(&err, "read %d nodes", len(ids))
	keys := []string{c.layout.Version(), c.layout.Revisions()}
	args := slices.Concat([]string{strconv.Itoa(len(ids))}, ids, profileFieldNames)
	reply, err := c.runner.Call(ctx, c.scripts["nodes"], keys, args).ToArray()
	if err != nil {
		return Changes{}, err
	}
	if err = readReply(reply, &out.NowMS, &out.Revision); err != nil {
		return Changes{}, err
	}
	out.Nodes, err = c.decodeNodes(reply[2:], false)
	return out, err
}

// History names the history that the server's data belongs to. It differs after a
// restart or a failover: the last writes may be lost then, and their revisions used
// again, which the cell's records note. Empty when the server does not answer.
func (c *Cell) History(ctx context.Context) (string, error) {
	id, err := c.runner.Call(ctx, c.scripts["identity"], []string{c.layout.Version()}, nil).ToString()
	wrap(&err, "read server identity")
	return id, err
}

// profileReader keeps from page to page of a load what the profiles said.
type profileReader struct {
	mu      sync.Mutex
	decoder *profile.Decoder // nil before the first page and after the last
}

// lock returns the decoder, to be used until unlock.
func (r *profileReader) lock() *profile.Decoder {
	r.mu.Lock()
	if r.decoder == nil {
		r.decoder = profile.NewDecoder()
	}
	return r.decoder
}

func (r *profileReader) unlock(more bool) {
	if !more {
		r.decoder = nil
	}
	r.mu.Unlock()
}

// decodeNodes reads the nodes of one page; more says whether another one follows.
func (c *Cell) decodeNodes(reply []rueidis.RedisMessage, more bool) ([]NodeState, error) {
	decoder := c.reader.lock()
	defer c.reader.unlock(more)
	nodes := make([]NodeState, len(reply))
	for i := range reply {
		values, err := reply[i].ToArray()
		if err != nil {
			return nil, err
		}
		text, err := texts(values)
		if err != nil {
			return nil, err
		}
		node := &nodes[i]
		if err := decodeNode(decoder, node, text); err != nil {
			return nil, err
		}
		if node.Broken != nil {
			c.unreadable.Warn(node.Node.ID, zap.String("node", node.Node.ID), zap.Error(node.Broken))
		}
	}
	return nodes, nil
}

// decodeNode reads a node of changes.lua into state, which is zero. An operator may have
// edited what it says: a value that cannot be read takes out this node, not the whole page.
func decodeNode(d *profile.Decoder, state *NodeState, text []string) (err error) {
	if len(text) < 3 || text[0] == "" {
		return fmt.Errorf("node with %d values", len(text))
	}
	state.Node.ID = text[0]
	if state.Revision, err = strconv.ParseUint(text[1], 10, 64); err != nil {
		return fmt.Errorf("revision of node %s: %w", text[0], err)
	}
	if text[0][0] == '-' {
		state.Node.ID, state.Gone, state.Lost = text[0][1:], true, text[2] == "1"
		return nil
	}
	if len(text) != 5+len(profileFieldNames) {
		return fmt.Errorf("node %s with %d values", text[0], len(text))
	}
	state.Epoch, state.Status = text[5], freeslot.Status(text[6])
	if resources := json.RawMessage(text[4]); json.Valid(resources) {
		state.Resources = resources
	}
	if err := errors.Join(decodeNumbers(state, text), decodeProfile(d, &state.Node, text)); err != nil {
		state.Broken = fmt.Errorf("node %s: %w", text[0], err)
	}
	return nil
}

func decodeNumbers(state *NodeState, text []string) (err error) {
	if state.Used, err = strconv.Atoi(orZero(text[2])); err != nil {
		return err
	}
	if state.LastHeartbeatMS, err = strconv.ParseInt(orZero(text[3]), 10, 64); err != nil {
		return err
	}
	state.RegisteredAtMS, err = strconv.ParseInt(orZero(text[7]), 10, 64)
	return err
}

// decodeProfile reads and checks what the agent stated.
func decodeProfile(d *profile.Decoder, n *freeslot.Node, text []string) (err error) {
	if n.MaxConcurrency, err = strconv.Atoi(orZero(text[8])); err != nil {
		return err
	}
	if err := n.Validate("node"); err != nil { // of the two that the decoder does not set
		return err
	}
	return d.Decode(n, profile.Text{
		Languages: text[9], Services: text[10], Pools: text[11], Labels: text[12], Features: text[13],
	})
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// NodeRevision reads the revision of a node's last change; 0 for a node that is
// not registered.
func (c *Cell) NodeRevision(ctx context.Context, node string) (Revision, error) {
	cmd := c.client.B().Zscore().Key(c.layout.Revisions()).Member(node).Build()
	score, err := c.runner.Do(ctx, "revision", cmd).AsFloat64()
	err = rueidisNil(err)
	wrap(&err, "revision of node %s", node)
	return Revision(score), err
}
