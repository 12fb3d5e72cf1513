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

// Changes reads the nodes that changed after since, oldest change first, up to
// limit of them, 1 at least. since 0 reads every node.
func (c *Cell) Changes(ctx context.Context, since Revision, limit int) (Changes, error) {
	l, limit := c.layout, max(limit, 1)
	keys := []string{l.Version(), l.Revisions()}
	args := append([]string{strconv.FormatUint(since, 10), strconv.Itoa(limit)}, profileFieldNames...)
	reply, err := c.runner.Call(ctx, c.scripts["changes"], keys, args).ToArray()
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
	keys := []string{l.Version(), l.Revisions()}
	args := slices.Concat([]string{strconv.Itoa(len(ids))}, ids, profileFieldNames)
	reply, err := c.runner.Call(ctx, c.scripts["nodes"], keys, args).ToArray()
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	now, revision, err := twoInts(reply, 0)
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	nodes, err := c.decodeNodes(reply[2:], false)
	if err != nil {
		return Changes{}, fmt.Errorf("read %d nodes: %w", len(ids), err)
	}
	return Changes{NowMS: now, Revision: Revision(revision), Nodes: nodes}, nil
}

// History names the history that the server's data belongs to. It differs after a
// restart or a failover: the last writes may be lost then, and their revisions used
// again. Empty when the server does not tell.
func (c *Cell) History(ctx context.Context) (string, error) {
	id, err := c.runner.Call(ctx, c.scripts["identity"], []string{c.layout.Version()}, nil).ToString()
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
	if out.Nodes, err = c.decodeNodes(reply[5:], out.More); err != nil {
		return Changes{}, err
	}
	if out.More {
		out.Next = out.Nodes[len(out.Nodes)-1].Revision
	}
	return out, nil
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
	var text []string
	for i := range reply {
		var err error
		if text, err = appendTexts(text[:0], &reply[i]); err != nil {
			return nil, err
		}
		node := &nodes[i]
		if err := decodeNode(decoder, node, text); err != nil {
			return nil, err
		}
		if node.Broken != nil {
			c.log.Warn("node.unreadable", zap.String("node", node.Node.ID), zap.Error(node.Broken))
		}
	}
	return nodes, nil
}

func appendTexts(to []string, m *rueidis.RedisMessage) ([]string, error) {
	values, err := m.ToArray()
	if err != nil {
		return to, err
	}
	for i := range values {
		text, err := values[i].ToString()
		if err != nil {
			return to, err
		}
		to = append(to, text)
	}
	return to, nil
}

// decodeNode reads a node of changes.lua into state, which is zero. An operator may have
// edited what it says: a value that cannot be read takes out this node, not the whole page.
func decodeNode(d *profile.Decoder, state *NodeState, text []string) (err error) {
	if len(text) < 2 || text[0] == "" {
		return fmt.Errorf("node with %d values", len(text))
	}
	state.Node.ID = text[0]
	if state.Revision, err = strconv.ParseUint(text[1], 10, 64); err != nil {
		return fmt.Errorf("revision of node %s: %w", text[0], err)
	}
	if text[0][0] == '-' {
		state.Node.ID, state.Gone = text[0][1:], true
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
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("revision of node %s: %w", node, err)
	}
	return Revision(score), nil
}
