package cache

import (
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/cell"
)

// changed takes the invalidations of the watch. Registrations invalidate too, after their events.
// The nodes are gathered, so that a registering fleet costs some calls, not one for each node.
func (f *follower) changed() {
	nodes, all := f.watch.Take()
	f.cache.metrics.invalidated.Add(float64(len(nodes)))
	if all {
		// Changes made without a script have no revision.
		f.stale, f.invalid = true, nil
		f.catchUp("invalidated")
		return
	}
	f.readAgain(nodes...)
}

// readAgain queues nodes to be read once more, together with others.
func (f *follower) readAgain(nodes ...string) {
	f.invalid = append(f.invalid, nodes...)
	if !f.gathering && len(f.invalid) > 0 {
		f.gathering = true
		f.gatherTimer.Reset(gather)
	}
}

// reread reads the invalidated nodes. It makes one call each time, so that events need not wait.
func (f *follower) reread() {
	n := min(len(f.invalid), f.cache.cfg.RefreshSize)
	if n == 0 {
		return
	}
	page, err := f.source.Nodes(f.cache.ctx, f.invalid[:n])
	if err != nil {
		if f.cache.ctx.Err() == nil {
			f.cache.metrics.resyncErrors.Inc()
			f.log.Warn("cache.reread_failed", zap.Error(err))
		}
		f.stale, f.invalid = true, nil // the next comparison reads everything
		f.hasten(calm)
		return
	}
	f.invalid = f.invalid[n:]
	for i := range page.Nodes {
		f.takeAhead(&page.Nodes[i], page.Revision, f.revision.Load())
	}
	if len(f.invalid) > 0 {
		f.gathering = true
		f.gatherTimer.Reset(time.Millisecond)
	}
}

// takeAhead applies a node as it was at a revision of the cell. Events from last up to that
// revision can still arrive.
func (f *follower) takeAhead(state *cell.NodeState, revision, last cell.Revision) {
	switch {
	case state.Gone:
		f.gone(state)
	case state.Revision == 0: // a profile that no agent has registered is no node
		f.remove(state.Node.ID, true)
	default:
		f.put(state)
	}
	if revision > last {
		f.ahead[state.Node.ID] = revision
	}
}
