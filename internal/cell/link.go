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
)

var (
	// ErrStaleConnection is returned to a gateway when a later connection of the same epoch has
	// registered the node or sent a heartbeat. Nothing was changed.
	ErrStaleConnection = errors.New("a newer connection of the agent is there")
	// ErrNodeInUse is returned to a gateway when the node lives under another token, or as a direct
	// agent. Nothing was changed.
	ErrNodeInUse = errors.New("the node lives under another token or without a gateway")
)

const (
	// NodeStream is the Stream of a link whose deliveries go to the dispatch stream of its node.
	NodeStream = "-"
	// maxConnection is far from where a number of Lua is no longer exact.
	maxConnection = 1 << 48
	// timeDigits is how long the time in load:<node> is.
	timeDigits = 13
)

// Link is how a node is connected through a gateway: what stands in load:<node> behind the time. The
// zero value is that of an agent which is connected to Redis itself.
type Link struct {
	// Connection counts the connections of one epoch, from 1.
	Connection int64
	// Stream is where deliveries go: NodeStream is the node's dispatch stream.
	Stream string
	// Session, Token (its name), Replica and Version (the agent's) are of the gateway's session. Bytes
	// of Version that no name can have are stored as '_'.
	Session, Token, Replica, Version string
	// RoundTrip is between gateway and agent, in whole microseconds; 0 is not measured.
	RoundTrip time.Duration
}

// NodeLink is what Redis knows of a node's connection.
type NodeLink struct {
	Epoch Epoch // "" where there is no record
	Link  Link
	Alive bool // it was heard within the heartbeat limit
}

// Link reads how a node is connected. Errors: *freeslot.Error (invalid_argument), else those of Redis.
func (c *Cell) Link(ctx context.Context, node string) (out NodeLink, err error) {
	if err := freeslot.ValidateName("node_id", node); err != nil {
		return NodeLink{}, err
	}
	defer wrap(&err, "connection of node %s", node)
	reply, err := c.runner.Call(ctx, c.scripts["link"], []string{c.layout.Node(node), c.layout.Load(node)}, nil).ToArray()
	var now int64
	var registered, load string
	if err == nil {
		err = readReply(reply, &now, &out.Epoch, &registered, &load)
	}
	if err != nil || out.Epoch == "" {
		return NodeLink{}, err
	}
	heard, link := parseLoad(load)
	if load == "" {
		heard, _ = parseLoad(registered)
	}
	out.Link, out.Alive = link, now-heard <= c.cfg.HeartbeatLimit.Milliseconds()
	return out, nil
}

// Links reads how nodes are connected. Those whose cells do not answer, and those that are not
// connected by a gateway, are left out.
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
		text, _ := loads[i].ToString() // an error is that of a node without a load
		if _, link := parseLoad(text); link.Connection > 0 {
			links[nodes[i]] = link
		}
	}
	return links, nil
}

// encode is the link as load:<node> has it: connection stream session token replica version rtt_us.
// Errors: *freeslot.Error (invalid_argument).
func (l *Link) encode() (string, error) {
	if l.Connection < 1 || l.Connection > maxConnection {
		return "", freeslot.Invalid("connection", "is %d, expected 1 to %d", l.Connection, int64(maxConnection))
	}
	if l.Stream != NodeStream {
		if err := freeslot.ValidateName("stream", l.Stream); err != nil {
			return "", err
		}
	}
	for _, part := range []struct{ field, name string }{{"session", l.Session}, {"token", l.Token}, {"replica", l.Replica}} {
		if err := freeslot.ValidateName(part.field, part.name); err != nil {
			return "", err
		}
	}
	connection, roundTrip := strconv.FormatInt(l.Connection, 10), strconv.FormatInt(max(0, l.RoundTrip.Microseconds()), 10)
	return strings.Join([]string{connection, l.Stream, l.Session, l.Token, l.Replica, versionName(l.Version), roundTrip}, " "), nil
}

// versionName is a version as part of a link: never empty, and without spaces.
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

// parseLoad reads load:<node>: the time, and the link behind it. What no script has written is
// never heard, or no link.
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
	err = readParts(load, &of, &link.Connection, &link.Stream, &link.Session, &link.Token, &link.Replica, &link.Version, &microseconds)
	if err != nil || link.Connection < 1 {
		return int64(heard), Link{}
	}
	if link.Version == "-" {
		link.Version = ""
	}
	link.RoundTrip = time.Duration(microseconds) * time.Microsecond
	return int64(heard), link
}
