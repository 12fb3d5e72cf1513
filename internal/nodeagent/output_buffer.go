package nodeagent

import "strings"

// capped keeps the first limit bytes. It drops the others, so that the writer never blocks, and
// calls exceeded once.
type capped struct {
	limit    int
	exceeded func()
	data     []byte
	over     bool
}

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	room := c.limit - len(c.data)
	c.data = append(c.data, p[:min(room, len(p))]...)
	if len(p) > room && !c.over {
		c.over = true
		c.exceeded()
	}
	return len(p), nil
}

// tail keeps the last limit bytes.
type tail struct {
	limit int
	data  []byte
	cut   bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p, t.cut = p[len(p)-t.limit:], true
	}
	if over := len(t.data) + len(p) - t.limit; over > 0 {
		t.data, t.cut = append(t.data[:0], t.data[over:]...), true
	}
	t.data = append(t.data, p...)
	return n, nil
}

// String returns valid UTF-8 without white space around it.
func (t *tail) String() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.data), "\uFFFD"))
	if t.cut {
		s = "…" + s
	}
	return s
}
