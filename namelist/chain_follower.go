package namelist

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/count"
)

// chainFollower is what the follower stores with a chain.
type chainFollower struct {
	view      *chainView
	since     time.Duration
	restoring bool
	reported  bool
	stop      func()
}

// addChain takes over a new chain.
func (f *follower) addChain(c *Chain) {
	f.chains[c.name] = c
	c.follower.since = f.now()
	c.follower.view = newChainView(c.name, f.now())
	if f.source != nil {
		f.followChain(c)
	}
}

// followChain subscribes to a chain's events.
func (f *follower) followChain(c *Chain) {
	c.follower.stop = f.source.follow(lists.ChainMark(c.name), f.hear(func(e lists.Event) heard {
		return heard{chain: c, event: e}
	}))
}

// runChains does the work on chains that is due.
func (f *follower) runChains(now time.Duration) {
	for _, c := range f.chains {
		v := c.follower.view
		f.fetchChain(c, now)
		f.restoreChain(c, now)
		if v.tick(now); v.dirty {
			f.c.publishChain(c, v.state(f.begun, now))
		}
	}
}

// fetchChain requests a chain that its view wants.
func (f *follower) fetchChain(c *Chain, now time.Duration) {
	if f.source == nil || f.fetching == fetchesAtOnce {
		return
	}
	v := c.follower.view
	_, number, due := v.fetch.Take(now)
	if !due {
		return
	}
	f.fetching++
	f.c.spawn(func() {
		ctx, cancel := context.WithTimeout(f.c.ctx, callTimeout)
		defer cancel()
		record, err := f.source.chain(ctx, c.name)
		if freeslot.CodeOf(err) == freeslot.CodeNotFound {
			record, err = lists.ChainRecord{}, nil
		}
		f.post(func(at time.Duration) {
			f.fetching--
			setFailure(&c.failure, err)
			if err != nil {
				f.failed(err)
				v.fetch.Failed(number, at)
				return
			}
			f.reached()
			v.answered(number, &record, f.c.List, now, at)
		})
	})
}

// chainReportsAtOnce bounds the bytes of a report: a chain can have 16 KiB of counters.
const chainReportsAtOnce = 8

// chainReports returns what the client has counted of chains, by their marks. fresh is true if one
// of them was not reported before: what it counts from then on is not lost.
func (f *follower) chainReports() (all map[string]lists.ClientReport, fresh bool) {
	all = make(map[string]lists.ClientReport, len(f.chains))
	for name, c := range f.chains {
		mark := c.follower.view.mark
		if mark.Birth == "" {
			continue
		}
		all[lists.ChainMark(name)] = lists.ClientReport{
			Birth: mark.Birth, Revision: mark.Revision, Serves: c.Status().Version, SDK: sdk, Counts: f.c.countedBy(c),
		}
		fresh = fresh || !c.follower.reported
	}
	return all, fresh
}

// restoreChain takes a chain from the disk if Redis did not send it in time.
func (f *follower) restoreChain(c *Chain, now time.Duration) {
	s := &c.follower
	if f.c.chainDisk == nil || s.restoring || s.view.shown.status.Reason != ChainReasonNotLoaded ||
		now-s.since < diskPatience {
		return
	}
	s.restoring = true
	f.c.spawn(func() {
		var saved savedChain
		var record lists.ChainRecord
		ok := f.c.chainDisk.Read(c.name, func(data []byte) (err error) {
			if err = json.Unmarshal(data, &saved); err == nil {
				record, err = lists.DecodeChain(c.name, saved.Chain)
			}
			return err
		})
		f.post(func(at time.Duration) {
			if ok {
				s.view.restore(&record, f.c.List, saved.AsOf.Sub(f.begun), at)
			}
		})
	})
}

// publishChain gives out a new state. Only the follower calls it.
func (c *Client) publishChain(of *Chain, state *chainState) {
	if before := of.state.Load(); state.serving.chain == before.serving.chain {
		state.counted = before.counted
	} else if state.serving.chain != nil {
		state.counted = of.counts.Set(append(state.serving.chain.RuleNames(), count.Default))
	}
	close(of.state.Swap(state).replaced)
	if c.chainDisk != nil && state.record != nil && !state.status.Stale {
		c.chainDisk.Changed(of.name, state)
	}
}

// savedChain is the JSON of a file. Chain is a [lists.ChainDocument].
type savedChain struct {
	AsOf  time.Time       `json:"as_of"`
	Chain json.RawMessage `json:"chain"`
}

// newChainSnapshots returns the folder in which a client keeps its chains.
func newChainSnapshots(dir, prefix string, log *zap.Logger) *follow.Disk[*chainState] {
	return &follow.Disk[*chainState]{
		Dir: dir, Prefix: prefix, Feature: "namelist-chain", Noun: "chain", Every: saveEvery, Log: log,
		Encode: func(to io.Writer, _ string, state *chainState) error {
			text, err := json.Marshal(state.record.Wire())
			if err != nil {
				return err
			}
			return json.NewEncoder(to).Encode(savedChain{AsOf: state.status.AsOf, Chain: text})
		},
		Same: func(a, b *chainState) bool { return a.record.Mark == b.record.Mark },
	}
}
