package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// CheckRegistry lists everything that is wrong with what the processes saw, and counts how often
// each rule had something to judge.
func CheckRegistry(h *RegistryHistory) (found []Violation, judged map[string]int) {
	c := newRegistryChecker(h)
	for _, l := range c.lives {
		for _, service := range l.follows {
			lists := l.seen(service)
			c.checkReasons(l, service, lists)
			c.checkContent(l, service, lists)
			c.checkMissing(l, service, lists)
			c.checkDead(l, service, lists)
			if !h.Loses {
				c.checkRemoved(l, service, lists)
			}
		}
	}
	c.checkHolders()
	return c.violations, c.judged
}

// registryChecker holds the state of CheckRegistry.
type registryChecker struct {
	checker
	*RegistryHistory
	lives  []*peerLife
	judged map[string]int
	// providers holds the lives that provide an instance.
	providers map[instanceName][]*peerLife
}

func newRegistryChecker(h *RegistryHistory) *registryChecker {
	c := &registryChecker{RegistryHistory: h, lives: h.lives(), judged: map[string]int{}, providers: map[instanceName][]*peerLife{}}
	for _, l := range c.lives {
		for _, name := range l.provides {
			c.providers[name] = append(c.providers[name], l)
		}
	}
	return c
}

// troubles returns the times at which something was wrong with Redis, with one of the programs, or
// with its way.
func (c *registryChecker) troubles(peers ...string) spans {
	var list []span
	if c.End > 0 {
		list = append(list, span{c.End, forever})
	}
	for _, t := range c.Troubles {
		target, isWay := strings.CutPrefix(t.Target, wayPrefix)
		if slices.Contains(peers, target) || !isWay && !c.isPeer(t.Target) {
			list = append(list, span{t.From, t.To})
		}
	}
	return joined(list, 0)
}

func (c *registryChecker) isPeer(name string) bool {
	return slices.ContainsFunc(c.lives, func(l *peerLife) bool { return l.peer == name })
}

// silent returns the times at which a process certainly sent nothing that Redis got.
func (c *registryChecker) silent(l *peerLife) spans {
	list := []span{{0, l.ran.from}, {l.ran.to, forever}}
	for _, t := range c.Troubles {
		if t.Target == l.peer && t.Action == Freeze || t.Target == wayPrefix+l.peer && (t.Action == Hole || t.Action == Cut) {
			list = append(list, span{t.From, t.To})
		}
	}
	return joined(list, 0)
}

// silentInstance returns the times at which no process sent anything for an instance. life is the
// life that counts, or empty for any.
func (c *registryChecker) silentInstance(name instanceName, life string) spans {
	var alive []span
	for _, l := range c.providers[name] {
		if life == "" || l.life == life {
			until := forever
			if over, is := l.over[name]; is {
				until = over
			}
			alive = append(alive, c.silent(l).outside(span{0, until})...)
		}
	}
	return joined(alive, 0).outside(span{0, forever})
}

// checkReasons: no list is empty, or not live, without a reason.
func (c *registryChecker) checkReasons(l *peerLife, service string, lists []saw) {
	for _, s := range lists[1:] {
		c.judged["lists"]++
		healthy := slices.ContainsFunc(s.Instances, func(in SeenInstance) bool { return in.Healthy })
		switch {
		case len(s.Instances) == 0 && (s.State != "empty" || s.Why == ""):
			c.bad("no reason", "%s has an empty list of %s at %s, state %q, why %q", l.life, service, s.from, s.State, s.Why)
		case !healthy && (s.HealthyState != "empty" || s.HealthyWhy == ""):
			c.bad("no reason", "%s has no healthy instance of %s at %s, state %q, why %q", l.life, service, s.from, s.HealthyState, s.HealthyWhy)
		case s.State != "live" && s.Why == "":
			c.bad("no reason", "the list of %s that %s has at %s is %s without a reason", service, l.life, s.from, s.State)
		}
	}
}

// checkContent: a list's data of an instance is what its provider has sent.
func (c *registryChecker) checkContent(l *peerLife, service string, lists []saw) {
	for _, s := range lists[1:] {
		for _, in := range s.Instances {
			name := instanceName{service, in.ID}
			if !slices.ContainsFunc(c.providers[name], func(p *peerLife) bool {
				return in.Address == p.addresses[name] && (in.Life == "" || in.Life == p.life)
			}) {
				c.bad("content", "%s has %s at address %q (%s) at %s, but nothing provides that", l.life, name, in.Address, in.Life, s.from)
			}
		}
	}
}

// checkMissing: a live instance is in the healthy part of every live consumer. While nothing breaks
// it is missing for at most an interval and a look.
func (c *registryChecker) checkMissing(l *peerLife, service string, lists []saw) {
	grace := c.noticed()
	for name, lives := range c.providers {
		if name.service != service {
			continue
		}
		var missing []span
		for _, s := range lists {
			if in := s.instance(name.id); in == nil || !in.Healthy || in.Late {
				missing = append(missing, s.span)
			}
		}
		for _, p := range lives {
			lived := p.ran
			if over, is := p.over[name]; is {
				lived.to = over
			}
			for _, calm := range c.troubles(p.peer, l.peer).outside(lived.both(l.ran)) {
				if calm.length() > grace {
					c.judged["live"]++
				}
				for _, m := range joined(missing, 0) {
					if m := m.both(calm); m.length() > grace {
						c.bad("missing", "%s does not have %s of %s from %s to %s, expected at most %s", l.life, name, p.life, m.from, end(m, lists), grace)
					}
				}
			}
		}
	}
}

// end returns the time at which a span ends, or the last list came.
func end(s span, lists []saw) string {
	if s.to == forever {
		return fmt.Sprintf("the end (last list at %s)", lists[len(lists)-1].from)
	}
	return s.to.String()
}

// excuses lists the states that admit that a list is not what Redis has.
var excuses = []string{"stale", "rebuilding", "disk"}

// checkDead: a silent instance leaves the healthy part after T and a look, unless the list says why
// it has not. One that left in good order goes after a look.
func (c *registryChecker) checkDead(l *peerLife, service string, lists []saw) {
	calms := c.troubles(l.peer).outside(l.ran)
	for name, lives := range c.providers {
		if name.service != service {
			continue
		}
		labels := []string{""} // for an instance that does not name its process
		for _, p := range lives {
			labels = append(labels, p.life)
		}
		for _, label := range labels {
			for _, dead := range c.silentInstance(name, label) {
				from, allowed := dead.from, c.Timeout+c.Look+c.Slack
				if over, left := c.left(name, dead.from); left {
					from, allowed = over, c.Look+c.Slack
				}
				for _, calm := range calms {
					// A consumer learns by its next look that Redis is back, and counts from then
					// on.
					late := span{max(from, calm.from+c.Look) + allowed, min(dead.to, calm.to)}
					for _, late := range c.begins(name).outside(late) {
						c.judged["dead"]++
						c.checkGone(l, name, label, dead, late, lists)
					}
				}
			}
		}
	}
}

// begins returns the times at which a process has begun to be an instance: a look can find its
// heartbeat before the list has its own data.
func (c *registryChecker) begins(name instanceName) spans {
	var list []span
	for _, l := range c.providers[name] {
		list = append(list, span{l.ran.from, l.ran.from + c.noticed()})
	}
	return joined(list, 0)
}

// checkGone: within a time, an instance with a label is in no healthy part.
func (c *registryChecker) checkGone(l *peerLife, name instanceName, label string, dead, late span, lists []saw) {
	for _, s := range lists[1:] {
		still := s.both(late)
		if still.length() <= 0 { // skips most lists: looking into all of them is slow
			continue
		}
		in := s.instance(name.id)
		if in == nil || !in.Healthy || in.Life != label || s.Last || slices.Contains(excuses, s.State) {
			continue
		}
		c.bad("dead", "%s has %s (%s) in its healthy list (%s) from %s to %s, but it is silent since %s", l.life, name, label, s.State, still.from, end(still, lists), dead.from)
		return
	}
}

// left returns the time at which an instance, silent since a moment, left in good order or was
// superseded.
func (c *registryChecker) left(name instanceName, silent time.Duration) (at time.Duration, left bool) {
	for _, l := range c.providers[name] {
		if over, is := l.over[name]; is && (over == silent || l.ran.to == silent) {
			return over, true
		}
	}
	return 0, false
}

// checkRemoved: no instance is removed before its limit is over. If many fell silent together, none
// is removed while the guard holds.
func (c *registryChecker) checkRemoved(l *peerLife, service string, lists []saw) {
	troubles := c.troubles(l.peer)
	for i := 2; i < len(lists); i++ {
		before, after := lists[i-1], lists[i]
		at := after.from
		if _, is := troubles.at(at); is {
			continue
		}
		for _, in := range before.Instances {
			if after.instance(in.ID) != nil || c.providers[instanceName{service, in.ID}] == nil {
				continue
			}
			c.checkRemoval(l, instanceName{service, in.ID}, before, at)
		}
	}
}

func (c *registryChecker) checkRemoval(l *peerLife, name instanceName, before saw, at time.Duration) {
	silence := c.silentInstance(name, "")
	sure, ok := silence.at(at)
	possible, unsure := c.unsure(name).at(at)
	switch {
	case c.leaves(name, at):
		return
	case !ok && !unsure && !slices.ContainsFunc(silence, func(s span) bool { return s.to <= at && s.to > at-c.Look-c.Slack }):
		c.bad("removed", "%s is gone for %s at %s, but it was not silent", name, l.life, at)
		return
	case !ok: // it may have been removed before it came back
		return
	}
	c.judged["removed"]++
	silent := at - min(sure.from, possible.from)
	if silent < c.Limit-c.Interval-c.Slack/4 {
		c.bad("removed", "%s is gone for %s at %s, after a silence of %s, expected at least %s", name, l.life, at, silent, c.Limit)
	}
	together := 0
	for _, in := range before.Instances {
		other := instanceName{name.service, in.ID}
		if c.leaves(other, at) { // it may be gone, or have beaten once more to say that it leaves
			continue
		}
		if from, is := c.silentSince(other, at); is && (from-sure.from).Abs() <= (c.Limit/4-c.Interval)/2 {
			together++
		}
	}
	if _, is := c.silentSince(name, at); !is || together < 2 || together*100 <= 30*len(before.Instances) {
		return
	}
	c.judged["guarded"]++
	if silent < 2*c.Limit {
		c.bad("guard", "%s is gone for %s at %s, after a silence of %s, but %d of %d fell silent together", name, l.life, at, silent, together, len(before.Instances))
	}
}

// leaves reports whether an instance that is silent at a moment may be deregistered by then. Either
// it was superseded and has been silent since, or its process was asked to end and left in good
// order during that silence. The request may be older than the silence: the way of the process may
// have been broken at that time.
func (c *registryChecker) leaves(name instanceName, at time.Duration) bool {
	silence, ok := c.silentInstance(name, "").at(at)
	return ok && slices.ContainsFunc(c.providers[name], func(l *peerLife) bool {
		over, is := l.over[name]
		return is && (over == silence.from || l.ran.to <= min(at, over) && silence.has(over))
	})
}

// unsure returns the times at which it is not sure that Redis got the heartbeats of an instance.
func (c *registryChecker) unsure(name instanceName) spans {
	list := slices.Clone([]span(c.silentInstance(name, "")))
	for _, p := range c.providers[name] {
		list = append(list, c.troubles(p.peer)...)
	}
	return joined(list, c.Interval+c.Slack)
}

// silentSince returns since when an instance, silent at a moment, has been silent; false if that is
// not sure.
func (c *registryChecker) silentSince(name instanceName, at time.Duration) (from time.Duration, sure bool) {
	silence, is := c.silentInstance(name, "").at(at)
	possible, _ := c.unsure(name).at(at)
	return silence.from, is && possible.from == silence.from
}

// checkHolders: no two processes both take themselves for the holder of an instance for longer than
// an interval.
func (c *registryChecker) checkHolders() {
	allowed := c.Interval + c.Slack
	for _, name := range slices.SortedFunc(maps.Keys(c.providers), func(a, b instanceName) int { return strings.Compare(a.String(), b.String()) }) {
		lives := c.providers[name]
		for i, a := range lives {
			for _, b := range lives[i+1:] {
				for _, x := range a.registered[name] {
					for _, y := range b.registered[name] {
						for _, both := range c.troubles(a.peer, b.peer).outside(x.both(y)) {
							c.judged["holders"]++
							if both.length() > allowed {
								c.bad("two holders", "of %s from %s to %s: %s and %s", name, both.from, both.to, a.life, b.life)
							}
						}
					}
				}
			}
		}
	}
}

// Unrest returns what is not as it should be once nothing breaks any more.
func (h *RegistryHistory) Unrest() []Violation {
	c := newRegistryChecker(h)
	truth := map[string][]string{}
	for name, lives := range c.providers {
		holders := 0
		for _, l := range lives {
			if _, over := l.over[name]; over || l.ran.to != forever {
				continue
			}
			if list := l.registered[name]; len(list) == 0 || list[len(list)-1].to != forever {
				c.bad("unrest", "%s is not registered by %s", name, l.life)
			}
			holders++
		}
		if holders > 0 {
			truth[name.service] = append(truth[name.service], name.id)
		}
		if holders > 1 {
			c.bad("unrest", "%s has %d holders", name, holders)
		}
	}
	for _, l := range c.lives {
		if l.ran.to != forever {
			continue
		}
		for _, service := range l.follows {
			c.checkRest(l, service, slices.Sorted(slices.Values(truth[service])))
		}
	}
	return c.violations
}

// checkRest: the last list has exactly the instances that exist, and all are well.
func (c *registryChecker) checkRest(l *peerLife, service string, truth []string) {
	lists := l.seen(service)
	last := lists[len(lists)-1].SeenList
	if last == nil {
		c.bad("unrest", "%s has no list of %s", l.life, service)
		return
	}
	var ids, ill []string
	for _, in := range last.Instances {
		ids = append(ids, in.ID)
		if in.Late || in.Unconfirmed || !in.Healthy {
			ill = append(ill, in.ID)
		}
	}
	state := "live"
	if len(truth) == 0 {
		state = "empty"
	}
	if !slices.Equal(ids, truth) || len(ill) > 0 || last.State != state {
		c.bad("unrest", "%s has %v of %s, %v of them not well, state %s (%s), expected %v and %s", l.life, ids, service, ill, last.State, last.Why, truth, state)
	}
}
