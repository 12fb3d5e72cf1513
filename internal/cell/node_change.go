package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell/profile"
	"github.com/freeslot/freeslot/internal/script"
)

// NodeState is a node as Redis has it.
type NodeState struct {
	// Node is in its normal form. It may share its lists and maps with other nodes, so they must
	// not be changed.
	Node   freeslot.Node
	Epoch  Epoch
	Status freeslot.Status
	Used   int
	// Resources holds what the node last reported of its machine. It is nil if the node reported
	// nothing yet, or something that is not JSON.
	Resources       json.RawMessage
	Revision        Revision
	RegisteredAtMS  int64
	LastHeartbeatMS int64
	// Gone is true for a tombstone: the node left at Revision. Only Node.ID is set.
	Gone bool
	// Lost is true if Redis lost the node: it is gone although no script removed it.
	Lost bool
	// Broken names the fields of the profile that cannot be read or are not valid. These fields are
	// empty, and the node fits no job.
	Broken error
}

// Changes is one page of the changes since a revision.
type Changes struct {
	// Generation is the random name of this revision counter. A counter that replaces a lost one
	// has another name.
	Generation string
	// GenerationAtMS is the time at which the counter began, by Redis' clock, or the later time at
	// which its server was first seen with another history (see History). It is 0 if an older
	// release began the counter, or if there is none.
	GenerationAtMS int64
	// Revision is the cell's revision at the time of the call.
	Revision Revision
	// NowMS is the time of the call by Redis' clock.
	NowMS int64
	Nodes []NodeState
	// More is true if the page was full: ask again with Next.
	More bool
	Next Revision
	// Incomplete is true if tombstones newer than since were dropped. Only a full load helps then.
	Incomplete bool
}

// profileFieldNames lists the fields of the profile hash that changes.lua and nodes.lua read, in
// the order that decodeNode expects.
var profileFieldNames = []string{
	"epoch", "status", "registered_at_ms",
	"max_concurrency", "capabilities", "installed_services", "pool_ids", "labels", "features_supported",
}

// Changes reads the nodes that changed after since, oldest change first, up to limit nodes (at
// least 1). since 0 reads every node.
func (c *Cell) Changes(ctx context.Context, since Revision, limit int) (out Changes, err error) {
	defer wrap(&err, "changes since %d", since)
	keys := []string{c.layout.Version(), c.layout.Revisions()}
	args := append([]string{strconv.FormatUint(since, 10), strconv.Itoa(max(limit, 1))}, profileFieldNames...)
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["changes"], keys, args))
	out = Changes{Generation: r.Text(), GenerationAtMS: r.Number(), Revision: Revision(r.Number()), NowMS: r.Number()}
	floor := Revision(r.Number())
	out.Incomplete, out.More, out.Next = since > 0 && since < floor, r.Number() == 1, out.Revision
	if r.Err != nil {
		return Changes{}, r.Err
	}
	if out.Nodes, err = c.decodeNodes(r.Values, out.More); err != nil {
		return Changes{}, err
	}
	if out.More {
		out.Next = out.Nodes[len(out.Nodes)-1].Revision
	}
	return out, nil
}

// Nodes reads the nodes with these ids, which must be valid. A node without a profile is Gone.
// Revision and NowMS in the answer are the cell's at that time. A node's Revision is the one of its
// last announced change, or 0 if there is none.
func (c *Cell) Nodes(ctx context.Context, ids []string) (out Changes, err error) {
	defer wrap(&err, "read %d nodes", len(ids))
	keys := []string{c.layout.Version(), c.layout.Revisions()}
	args := slices.Concat([]string{strconv.Itoa(len(ids))}, ids, profileFieldNames)
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["nodes"], keys, args))
	out.NowMS, out.Revision = r.Number(), Revision(r.Number())
	if r.Err != nil {
		return Changes{}, r.Err
	}
	out.Nodes, err = c.decodeNodes(r.Values, false)
	return out, err
}

// History returns a name for the history that the server's data belongs to. A restart or a failover
// changes it: the last writes may be lost and their revisions used again. The cell's records note
// such a change. It is empty if the server does not answer.
func (c *Cell) History(ctx context.Context) (string, error) {
	id, err := c.runner.Call(ctx, c.scripts["identity"], []string{c.layout.Version()}, nil).ToString()
	wrap(&err, "read server identity")
	return id, err
}

// decodeNodes reads the nodes of one page. more is true if another page follows.
func (c *Cell) decodeNodes(reply []rueidis.RedisMessage, more bool) ([]NodeState, error) {
	decoder := c.reader.lock()
	defer c.reader.unlock(more)
	nodes := make([]NodeState, len(reply))
	for i := range reply {
		r := script.ReadReply(&reply[i])
		text := r.Texts()
		if r.Err != nil {
			return nil, r.Err
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

// decodeNode reads a node of changes.lua into state, which must be zero. An operator may have
// edited the record: a value that cannot be read takes out this node, not the whole page.
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

// decodeProfile reads and checks the profile that the agent stated.
func decodeProfile(d *profile.Decoder, n *freeslot.Node, text []string) (err error) {
	if n.MaxConcurrency, err = strconv.Atoi(orZero(text[8])); err != nil {
		return err
	}
	if err := n.Validate("node"); err != nil { // checks the two fields that the decoder does not set
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

// NodeRevision returns the revision of a node's last change; 0 for a node that is not registered.
func (c *Cell) NodeRevision(ctx context.Context, node string) (Revision, error) {
	cmd := c.client.B().Zscore().Key(c.layout.Revisions()).Member(node).Build()
	score, err := c.runner.Do(ctx, "revision", cmd).AsFloat64()
	err = rueidisNil(err)
	wrap(&err, "revision of node %s", node)
	return Revision(score), err
}
