package manage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/version"
)

const (
	// collectSlice is about how long one page of a collection takes.
	collectSlice = time.Second
	// collectEvery is the average time between two collections of a replica.
	collectEvery = 24 * time.Hour
)

// CollectRequest asks for a page of a collection.
type CollectRequest struct {
	// Server is the list server to look through; empty means all.
	Server string
	// DryRun removes nothing.
	DryRun bool
	// After is the Next of the previous page; empty begins.
	After string
}

// Collected is what one page of a collection found.
type Collected struct {
	Looked  int64       `json:"looked" doc:"Keys of lists that were looked at."`
	Builds  []LeftBuild `json:"builds" doc:"Builds that no list names any more. One can be on several pages."`
	Removed int64       `json:"removed" doc:"Keys that were removed."`
	Foreign int64       `json:"foreign" doc:"Keys that stay because the control server has no record of their list or version: of another control server, or it has lost its data."`
	Failed  []string    `json:"failed,omitempty" doc:"Servers that could not be looked through, and why."`
	Next    string      `json:"next,omitempty" doc:"Continues the collection; absent at its end."`
}

// LeftBuild describes what a build has left on a server.
type LeftBuild struct {
	Server  string `json:"server,omitempty"`
	List    string `json:"list"`
	Version int64  `json:"version"`
	Build   string `json:"build"`
	Keys    int64  `json:"keys"`
}

// Collect looks, for about a second, for keys of builds that are neither a version nor running, and
// removes them. It reads the records after the keys. By then the operation of every key that was
// written is in the record, and a build that is over stays over. It leaves a list alone if the list
// has no record, or lacks versions that its record names; and a version above the highest that its
// record knows. In these cases the control server may have lost its data, or be another one.
func (m *Manager) Collect(ctx context.Context, q CollectRequest) (out Collected, err error) {
	out.Builds = []LeftBuild{}
	names, err := m.serverNames(ctx)
	if err != nil {
		return out, err
	}
	if q.Server != "" && !slices.Contains(names, q.Server) {
		return out, freeslot.Invalid("server", "is %q, expected one of %q", q.Server, names[1:])
	}
	if q.Server != "" {
		names = []string{q.Server}
	}
	name, cursor, ok := strings.Cut(q.After, "/")
	at := 0
	for ok && at < len(names) && names[at] != name {
		at++
	}
	if at == len(names) || q.After != "" && !ok {
		return out, freeslot.Invalid("after", "is %q, which is of no list server", q.After)
	}
	named := make(map[string]namelist.Named)
	for begin := time.Now(); ; {
		cursor, err = m.collectKeys(ctx, names[at], cursor, q.DryRun, named, &out)
		if err != nil {
			if ctx.Err() != nil {
				return out, err
			}
			out.Failed = append(out.Failed, fmt.Sprintf("%q: %v", names[at], err))
			cursor = ""
		}
		if cursor == "" {
			if at++; at == len(names) {
				return out, nil
			}
		}
		if time.Since(begin) > collectSlice {
			out.Next = names[at] + "/" + cursor
			return out, nil
		}
	}
}

// serverNames returns the names of all list servers; the empty name is the control server.
func (m *Manager) serverNames(ctx context.Context) ([]string, error) {
	servers, err := m.control.Servers(ctx)
	names := []string{""}
	for _, s := range servers {
		names = append(names, s.Name)
	}
	return names, err
}

// collectKeys continues with one server by one call, and returns its next cursor. named holds the
// lists that were read: a version once named may be over by now, and is left for the next
// collection.
func (m *Manager) collectKeys(
	ctx context.Context, name, cursor string, dry bool, named map[string]namelist.Named, out *Collected,
) (string, error) {
	server, err := m.cfg.Server(ctx, name)
	if err != nil {
		return "", err
	}
	server = server.Resting()
	keys, next, err := server.Keys(ctx, cursor)
	if err != nil {
		return "", err
	}
	out.Looked += int64(len(keys))
	fresh := make(map[string]bool)
	var left []version.Key
	for _, k := range keys {
		if named[k.List].Numbers[k.Version] {
			continue
		}
		if !fresh[k.List] {
			if named[k.List], err = m.control.Named(ctx, k.List); err != nil {
				return "", err
			}
			fresh[k.List] = true
		}
		switch n := named[k.List]; {
		case n.Numbers[k.Version]:
		case k.Version > n.Highest:
			out.Foreign++
		default:
			left = append(left, k)
		}
	}
	builds, err := server.Builds(ctx, left)
	if err != nil {
		return "", err
	}
	for of, keys := range builds {
		out.Builds = append(
			out.Builds, LeftBuild{Server: name, List: keys[0].List, Version: keys[0].Version, Build: of, Keys: int64(len(keys))},
		)
		if dry {
			continue
		}
		removed, err := server.UnlinkKeys(ctx, of, keys)
		if out.Removed += removed; err != nil {
			return "", err
		}
	}
	return next, nil
}

// collectLoop removes, once a day, what killed replicas have left.
func (m *Manager) collectLoop() {
	for wait := rand.N(collectEvery); ; wait = collectEvery/2 + rand.N(collectEvery) {
		timer := time.NewTimer(wait)
		select {
		case <-m.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		m.collectAll()
	}
}

func (m *Manager) collectAll() {
	removed, foreign, q := int64(0), int64(0), CollectRequest{}
	for {
		ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
		page, err := m.Collect(ctx, q)
		cancel()
		removed, foreign = removed+page.Removed, foreign+page.Foreign
		for _, why := range page.Failed {
			err = errors.Join(err, errors.New(why))
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Warn("lists.collect_failed", zap.Error(err))
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	if removed > 0 || foreign > 0 {
		m.log.Warn("lists.keys_collected", zap.Int64("keys", removed), zap.Int64("foreign", foreign))
	}
}
