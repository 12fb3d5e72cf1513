package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// Changes reads the nodes that changed after since, oldest change first, up to
// limit of them, 1 at least. since 0 reads every node.
func (c *Cell) Changes(ctx context.Context, since Revision, limit int) (Changes, error) {
	l, limit := c.layout, max(limit, 1)
	keys := []string{l.Version(), l.Revisions(), l.Heartbeats()}
	args := append([]string{strconv.FormatUint(since, 10), strconv.Itoa(limit), l.Prefix, l.tagPart()}, profileFieldNames...)
	reply, err := c.exec(ctx, "changes", c.scripts.changes, keys, args).ToArray()
	if err != nil {
		return Changes{}, fmt.Errorf("changes since %d: %w", since, err)
	}
	out, err := c.decodeChanges(reply, since)
	if err != nil {
		return Changes{}, fmt.Errorf("changes since %d: %w", since, err)
	}
	return out, nil
}

// Nodes reads the nodes with these valid ids; one without a profile is Gone. In the
// answer Revision and NowMS are the cell's at that time, and a node's Revision is
// that of its last announced change, 0 when there is none.
func (c *Cell) Nodes(ctx context.Context, ids []string) (Changes, error) {
	l := c.layout
	keys := []string{l.Version(), l.Revisions(), l.Heartbeats()}
	args := append([]string{strconv.Itoa(len(ids)), strings.Join(ids, " "), l.Prefix, l.tagPart()}, profileFieldNames...)
	reply, err := c.exec(ctx, "nodes", c.scripts.nodes, keys, args).ToArray()
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	now, revision, err := twoInts(reply, 0)
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	nodes, err := c.decodeNodes(reply[2:])
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	return Changes{NowMS: now, Revision: Revision(revision), Nodes: nodes}, nil
}

// History names the history that the server's data belongs to. It differs after a
// restart or a failover: the last writes may be lost then, and their revisions used
// again. Empty when the server does not tell.
func (c *Cell) History(ctx context.Context) (string, error) {
	id, err := c.exec(ctx, "identity", c.scripts.identity, []string{c.layout.Version()}, nil).ToString()
	if err != nil {
		return "", fmt.Errorf("read server identity: %w", err)
	}
	return id, nil
}

func (c *Cell) decodeChanges(reply []rueidis.RedisMessage, since Revision) (Changes, error) {
	if len(reply) < 5 {
		return Changes{}, fmt.Errorf("reply has %d values, expected at least 5", len(reply))
	}
	generation, err := reply[0].ToString()
	if err != nil {
		return Changes{}, err
	}
	var head [4]int64
	for i := range head {
		if head[i], err = intAt(reply, i+1); err != nil {
			return Changes{}, err
		}
	}
	out := Changes{
		Generation: generation, Revision: Revision(head[0]), NowMS: head[1],
		Incomplete: since > 0 && since < Revision(head[2]), More: head[3] == 1, Next: Revision(head[0]),
	}
	if out.Nodes, err = c.decodeNodes(reply[5:]); err != nil {
		return Changes{}, err
	}
	if out.More {
		out.Next = out.Nodes[len(out.Nodes)-1].Revision
	}
	return out, nil
}

func (c *Cell) decodeNodes(reply []rueidis.RedisMessage) ([]NodeState, error) {
	nodes := make([]NodeState, 0, len(reply))
	for _, m := range reply {
		text, err := m.AsStrSlice()
		if err != nil {
			return nil, err
		}
		node, err := decodeNode(text)
		if err != nil {
			return nil, err
		}
		if node.Broken != nil {
			c.log.Warn("node.unreadable", zap.String("node", node.Node.ID), zap.Error(node.Broken))
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// decodeNode reads a node of changes.lua. An operator may have edited what it says:
// a value that cannot be read takes out this node, not the whole page.
func decodeNode(text []string) (NodeState, error) {
	if len(text) < 2 || text[0] == "" {
		return NodeState{}, fmt.Errorf("node with %d values", len(text))
	}
	revision, err := strconv.ParseUint(text[1], 10, 64)
	if err != nil {
		return NodeState{}, fmt.Errorf("revision of node %s: %w", text[0], err)
	}
	if text[0][0] == '-' {
		return NodeState{Node: freeslot.Node{ID: text[0][1:]}, Revision: revision, Gone: true}, nil
	}
	if len(text) != 5+len(profileFieldNames) {
		return NodeState{}, fmt.Errorf("node %s with %d values", text[0], len(text))
	}
	state := NodeState{
		Node: freeslot.Node{ID: text[0]}, Revision: revision,
		Epoch: text[5], Status: freeslot.Status(text[6]),
	}
	if json.Valid([]byte(text[4])) {
		state.Resources = json.RawMessage(text[4])
	}
	state.Broken = errors.Join(decodeNumbers(&state, text), decodeProfile(&state.Node, text[9:]))
	return state, nil
}

func decodeNumbers(state *NodeState, text []string) (err error) {
	for i, target := range map[int]*int64{3: &state.LastHeartbeatMS, 7: &state.RegisteredAtMS} {
		if *target, err = strconv.ParseInt(orZero(text[i]), 10, 64); err != nil {
			return fmt.Errorf("node %s: %w", text[0], err)
		}
	}
	for i, target := range map[int]*int{2: &state.Used, 8: &state.Node.MaxConcurrency} {
		if *target, err = strconv.Atoi(orZero(text[i])); err != nil {
			return fmt.Errorf("node %s: %w", text[0], err)
		}
	}
	return nil
}

// decodeProfile reads the JSON fields of a profile.
func decodeProfile(n *freeslot.Node, text []string) error {
	for i, target := range []any{&n.Languages, &n.Services, &n.Pools, &n.Labels, &n.Features} {
		if text[i] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text[i]), target); err != nil {
			return fmt.Errorf("field %s of node %s: %w", profileFieldNames[4+i], n.ID, err)
		}
	}
	return nil
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
	score, err := c.do(ctx, "revision", cmd).AsFloat64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("revision of node %s: %w", node, err)
	}
	return Revision(score), nil
}
