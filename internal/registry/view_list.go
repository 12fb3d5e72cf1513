package registry

import (
	"fmt"
	"slices"
	"strings"
)

// build makes the list if it differs from the last one. The new list shares instances with earlier
// ones.
func (v *view) build() (l *List, changed bool) {
	if !v.dirty || !v.loaded && !v.disk {
		return v.shown, false
	}
	v.dirty = false
	if len(v.changed) > 0 {
		v.all = v.merge()
		clear(v.changed)
	}
	l = &List{
		Service: v.service, Revision: v.head.Revision, Instances: v.all, Timeout: v.timeout(), head: v.head,
		healthy: new(onceList),
	}
	l.State, l.Why = v.state()
	v.shown = l
	return l, true
}

// merge returns all, updated by what has changed. It copies the part between two changes in one go.
func (v *view) merge() []*Instance {
	ids := make([]string, 0, len(v.changed))
	for id := range v.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	out, rest := make([]*Instance, 0, len(v.instances)), v.all
	for _, id := range ids {
		at, there := slices.BinarySearchFunc(
			rest, id, func(in *Instance, id string) int { return strings.Compare(in.ID, id) },
		)
		out = append(out, rest[:at]...)
		if rest = rest[at:]; there {
			rest = rest[1:]
		}
		if h := v.instances[id]; h != nil {
			out = append(out, h.in)
		}
	}
	return append(out, rest...)
}

// state returns the list's state, and why.
func (v *view) state() (State, string) {
	switch {
	case len(v.instances) == 0:
		return StateEmpty, v.whyEmpty()
	case v.disk:
		return StateDisk, "redis was not reached since the start"
	case v.silent:
		return StateStale, "redis is silent"
	case len(v.unconfirmed) > 0:
		return StateRebuilding, fmt.Sprintf(
			"redis has lost data: %d of %d instances have not registered again", len(v.unconfirmed), len(v.instances),
		)
	case v.lost:
		return StateRebuilding, "redis has lost data"
	case v.head.Guard != "":
		return StateProtected, v.head.Guard
	}
	return StateLive, ""
}

func (v *view) whyEmpty() string {
	switch {
	case v.head.Why != "":
		return v.head.Why
	case v.emptied != "":
		return v.emptied
	case v.head.Revision == 0:
		return WhyNeverRegistered
	}
	return WhyRemoved
}
