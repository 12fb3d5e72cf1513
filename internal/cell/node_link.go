package cell

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

var (
	// ErrStaleConnection is returned to a gateway if a later connection of the same epoch has
	// registered the node or sent a heartbeat. Nothing was changed.
	ErrStaleConnection = errors.New("a newer connection of the agent is there")
	// ErrNodeInUse is returned to a gateway if the node lives under another token, or as a direct
	// agent. Nothing was changed.
	ErrNodeInUse = errors.New("the node lives under another token or without a gateway")
)

const (
	// NodeStream is the Stream of a link if deliveries go to the node's own dispatch stream.
	NodeStream = "-"
	// maxConnection is far below the numbers that Lua no longer holds exactly.
	maxConnection = 1 << 48
	// timeDigits is the number of digits of the time in load:<node>.
	timeDigits = 13
)

// Link says how a node is connected through a gateway. load:<node> holds it after the time. The
// zero value is for an agent that is connected to Redis itself.
type Link struct {
	// Connection counts the connections of one epoch, from 1.
	Connection int64
	// Stream is the stream that deliveries go to. NodeStream stands for the node's dispatch stream.
	Stream string
	// Session, Token (its name), Replica and Version (of the agent) describe the gateway's session.
	// A byte of Version that no name may contain is stored as '_'.
	Session, Token, Replica, Version string
	// RoundTrip is the time between gateway and agent and back, in whole microseconds; 0 if not
	// measured.
	RoundTrip time.Duration
}

// NodeLink is what Redis knows about a node's connection.
type NodeLink struct {
	Epoch Epoch // "" if there is no record
	Link  Link
	Alive bool // true if it was heard within the heartbeat limit
}

// Link reads how a node is connected. Errors: *freeslot.Error (invalid_argument), or from Redis.
func (c *Cell) Link(ctx context.Context, node string) (out NodeLink, err error) {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return NodeLink{}, err
	}
	defer wrap(&err, "connection of node %s", node)
	r := script.ReadReply(c.runner.Call(ctx, c.scripts["link"], []string{c.layout.Node(node), c.layout.Load(node)}, nil))
	now, epoch, registered, load := r.Number(), r.Text(), r.Text(), r.Text()
	if r.Err != nil || epoch == "" {
		return NodeLink{}, r.Err
	}
	heard, link := parseLoad(load)
	if load == "" {
		heard, _ = parseLoad(registered)
	}
	return NodeLink{Epoch: epoch, Link: link, Alive: now-heard <= c.cfg.HeartbeatLimit.Milliseconds()}, nil
}

// Links reads how nodes are connected. It leaves out nodes whose cell does not answer, and nodes
// without a gateway.
func (s *Set) Links(ctx context.Context, nodes []string) map[string]Link {
	groups := make([][]string, len(s.cells))
	for _, node := range nodes {
		i := s.OfNode(node).cfg.Index
		groups[i] = append(groups[i], node)
	}
	var mu sync.Mutex // guards links
	links := make(map[string]Link)
	s.each(func(c *Cell) error {
		found, err := c.links(ctx, groups[c.cfg.Index])
		mu.Lock()
		defer mu.Unlock()
		for node, link := range found {
			links[node] = link
		}
		return err
	})
	return links
}

func (c *Cell) links(ctx context.Context, nodes []string) (map[string]Link, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	keys := make([]string, len(nodes))
	for i, node := range nodes {
		keys[i] = c.layout.Load(node)
	}
	loads, err := c.runner.Do(ctx, "read", c.client.B().Mget().Key(keys...).Build()).ToArray()
	if err != nil {
		return nil, fmt.Errorf("connections of nodes: %w", err)
	}
	links := make(map[string]Link)
	for i := range loads {
		text, _ := loads[i].ToString() // a node without a load gives an error
		if _, link := parseLoad(text); link.Connection > 0 {
			links[nodes[i]] = link
		}
	}
	return links, nil
}

// encode returns the link in the form of load:<node>: connection stream session token replica
// version rtt_us. Errors: *freeslot.Error (invalid_argument).
func (l *Link) encode() (string, error) {
	if l.Connection < 1 || l.Connection > maxConnection {
		return "", freeslot.Invalid("connection", "is %d, expected 1 to %d", l.Connection, int64(maxConnection))
	}
	if l.Stream != NodeStream {
		if err := freeslot.ValidateName("stream", l.Stream); err != nil {
			return "", err
		}
	}
	for _, part := range []struct{ field, name string }{
		{"session", l.Session}, {"token", l.Token}, {"replica", l.Replica},
	} {
		if err := freeslot.ValidateName(part.field, part.name); err != nil {
			return "", err
		}
	}
	connection, roundTrip := strconv.FormatInt(l.Connection, 10), strconv.FormatInt(max(0, l.RoundTrip.Microseconds()), 10)
	parts := []string{connection, l.Stream, l.Session, l.Token, l.Replica, versionName(l.Version), roundTrip}
	return strings.Join(parts, " "), nil
}

// versionName returns a version as part of a link: not empty, and without spaces.
func versionName(version string) string {
	if version == "" {
		return "-"
	}
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '_'
	}, version[:min(len(version), freeslot.MaxNameLength)])
}

// parseLoad reads load:<node>: the time, then the link. If no script wrote it, the time is 0 or the
// link is empty.
func parseLoad(load string) (heardMS int64, link Link) {
	if len(load) < timeDigits {
		return 0, Link{}
	}
	heard, err := strconv.ParseUint(load[:timeDigits], 10, 63)
	if err != nil {
		return 0, Link{}
	}
	var of string
	var microseconds int64
	err = readParts(load, &of, &link.Connection, &link.Stream, &link.Session, &link.Token, &link.Replica, &link.Version,
		&microseconds)
	if err != nil || link.Connection < 1 {
		return int64(heard), Link{}
	}
	if link.Version == "-" {
		link.Version = ""
	}
	link.RoundTrip = time.Duration(microseconds) * time.Microsecond
	return int64(heard), link
}
