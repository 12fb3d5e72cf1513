package faults

import (
	"slices"
	"testing"
	"time"
)

// registryTimes are those of the runs, and of the tests of the checker.
var registryTimes = RegistryTimes{
	Interval: 300 * time.Millisecond, Timeout: time.Second, Look: time.Second, Limit: 2 * time.Second, Slack: time.Second,
}

// tale is a history that a test tells, in seconds. The consumer c follows the service web.
type tale struct{ RegistryHistory }

func told() *tale {
	s := &tale{RegistryHistory{RegistryTimes: registryTimes}}
	s.add(0, PeerEvent{Kind: PeerFollows, Peer: "c", Life: "c-1", Service: "web"})
	return s
}

func (s *tale) add(at float64, e PeerEvent) {
	e.At = seconds(at)
	s.Events = append(s.Events, e)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// provides has a process provide an instance, and registers it.
func (s *tale) provides(at float64, peer, life, id string) *tale {
	s.add(at, PeerEvent{Kind: PeerProvides, Peer: peer, Life: life, Service: "web", ID: id})
	return s.says(at, PeerRegistered, peer, life, id)
}

func (s *tale) says(at float64, kind PeerKind, peer, life, id string) *tale {
	s.add(at, PeerEvent{Kind: kind, Peer: peer, Life: life, Service: "web", ID: id})
	return s
}

// lists has the consumer see a list; the state is live if there is one.
func (s *tale) lists(at float64, instances ...SeenInstance) *tale {
	l := &SeenList{State: "live", HealthyState: "live", Instances: instances}
	if len(instances) == 0 {
		l.State, l.Why, l.HealthyState, l.HealthyWhy = "empty", "expired", "empty", "expired"
	}
	return s.list(at, l)
}

func (s *tale) list(at float64, l *SeenList) *tale {
	s.add(at, PeerEvent{Kind: PeerSaw, Peer: "c", Life: "c-1", Service: "web", List: l})
	return s
}

func (s *tale) breaks(target string, action Action, from, to float64) *tale {
	s.Troubles = append(s.Troubles, Trouble{target, action, seconds(from), seconds(to)})
	return s
}

// halves has p provide a and b, q provide c and d, and r provide e. The first list has all of them.
func halves() *tale {
	return told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").provides(0, "q", "q-1", "c").provides(0, "q", "q-1", "d").
		provides(0, "r", "r-1", "e").lists(1, well("a", "b", "c", "d", "e")...)
}

func well(ids ...string) (out []SeenInstance) {
	for _, id := range ids {
		out = append(out, SeenInstance{ID: id, Healthy: true})
	}
	return out
}

func late(ids ...string) (out []SeenInstance) {
	for _, id := range ids {
		out = append(out, SeenInstance{ID: id, Late: true})
	}
	return out
}

// TestCheckRegistry: the checker finds what it is for, and no more.
func TestCheckRegistry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told  *tale
		rules []string
	}{
		"all is well":     {told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...)},
		"never in a list": {told: told().provides(0, "p", "p-1", "a").lists(1), rules: []string{"missing"}},
		"no list at all":  {told: told().provides(0, "p", "p-1", "a"), rules: []string{"missing"}},
		"late for long": {
			told:  told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").lists(1, well("a", "b")...).lists(5, append(well("a"), late("b")...)...),
			rules: []string{"missing"},
		},
		"late for a moment": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").lists(1, well("a", "b")...).
				lists(5, append(well("a"), late("b")...)...).lists(6, well("a", "b")...),
		},
		"missing while redis is away": {told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(3).lists(7, well("a")...).breaks("redis", Kill, 2, 6)},
		"missing for long after redis is back": {
			told:  told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(3).lists(9, well("a")...).breaks("redis", Kill, 2, 6),
			rules: []string{"missing"},
		},
		"missing while the way of its provider is cut": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(4).lists(11, well("a")...).breaks("way-p", Hole, 2, 10),
		},
		"missing while the consumer is frozen": {told: told().provides(9, "p", "p-1", "a").lists(1).lists(20, well("a")...).breaks("c", Freeze, 8, 19)},
		"missing when superseded": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).says(3, PeerSuperseded, "p", "p-1", "a").lists(4),
		},
		"dead and late": {told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(5.5, late("a")...).breaks("p", Kill, 3, 100), rules: []string{"no reason"}},
		"dead and gone": {told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(5.5).breaks("p", Kill, 3, 100)},
		"dead for long": {told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(6.5).breaks("p", Kill, 3, 100), rules: []string{"dead"}},
		"frozen for long": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).breaks("p", Freeze, 3, 100), rules: []string{"dead"},
		},
		"dead, and the list says that it is old": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).breaks("p", Kill, 3, 100).
				list(4, &SeenList{State: "stale", Why: "redis is silent", HealthyState: "stale", HealthyWhy: "redis is silent", Instances: well("a")}),
		},
		"dead while redis was away": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).lists(11).breaks("p", Kill, 3, 100).breaks("redis", Freeze, 2, 7.5),
		},
		"left": {
			told: told().provides(0, "p", "p-1", "a").lists(1, well("a")...).says(3.2, PeerLeft, "p", "p-1", "a").breaks("p", Stop, 3, 100).lists(4),
		},
		"left long ago": {
			told:  told().provides(0, "p", "p-1", "a").lists(1, well("a")...).says(3.2, PeerLeft, "p", "p-1", "a").breaks("p", Stop, 3, 100).lists(5.5),
			rules: []string{"dead"},
		},
		"an earlier life": {
			told: told().provides(0, "p", "p-1", "a").lists(1, SeenInstance{ID: "a", Life: "p-1", Healthy: true}).breaks("p", Kill, 3, 3.5).
				provides(4, "p", "p-2", "a").lists(4.5, SeenInstance{ID: "a", Life: "p-2", Healthy: true}),
		},
		"an earlier life for long": {
			told:  told().provides(0, "p", "p-1", "a").lists(1, SeenInstance{ID: "a", Life: "p-1", Healthy: true}).breaks("p", Kill, 3, 3.5).provides(4, "p", "p-2", "a"),
			rules: []string{"dead"},
		},
		"an earlier life for a moment, when the next one beats": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "q", "q-1", "b").lists(1, append(well("b"), SeenInstance{ID: "a", Life: "p-1", Healthy: true})...).
				breaks("p", Kill, 3, 7).lists(4.5, append(well("b"), SeenInstance{ID: "a", Life: "p-1", Late: true})...).
				provides(7, "p", "p-2", "a").lists(7.1, append(well("b"), SeenInstance{ID: "a", Life: "p-1", Healthy: true})...).
				lists(7.2, append(well("b"), SeenInstance{ID: "a", Life: "p-2", Healthy: true})...),
		},
		"empty without a reason": {told: told().list(1, &SeenList{State: "live", HealthyState: "empty", HealthyWhy: "none healthy"}), rules: []string{"no reason"}},
		"stale without a reason": {
			told:  told().provides(0, "p", "p-1", "a").list(1, &SeenList{State: "stale", HealthyState: "stale", Instances: well("a")}),
			rules: []string{"no reason"},
		},
		"nothing provides it": {told: told().provides(0, "p", "p-1", "a").lists(1, well("a", "b")...), rules: []string{"content"}},
		"another address": {
			told: told().provides(0, "p", "p-1", "a").lists(1, SeenInstance{ID: "a", Address: "10.0.0.1:80", Healthy: true}), rules: []string{"content"},
		},
		"removed too soon": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "q", "q-1", "b").provides(0, "q", "q-1", "c").provides(0, "q", "q-1", "d").
				lists(1, well("a", "b", "c", "d")...).breaks("p", Kill, 3, 100).lists(4, well("b", "c", "d")...),
			rules: []string{"removed"},
		},
		"removed while it lives": {
			told:  told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").lists(1, well("a", "b")...).lists(3, well("a")...).lists(3.1, well("a", "b")...),
			rules: []string{"removed"},
		},
		"removed in time": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "q", "q-1", "b").provides(0, "q", "q-1", "c").provides(0, "q", "q-1", "d").
				lists(1, well("a", "b", "c", "d")...).breaks("p", Kill, 3, 100).lists(5.5, well("b", "c", "d")...),
		},
		"half of it removed": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").provides(0, "q", "q-1", "c").provides(0, "q", "q-1", "d").
				lists(1, well("a", "b", "c", "d")...).breaks("p", Kill, 3, 100).lists(5.5, well("c", "d")...),
			rules: []string{"guard", "guard"},
		},
		"half of it removed after the guard": {
			told: told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").provides(0, "q", "q-1", "c").provides(0, "q", "q-1", "d").
				lists(1, well("a", "b", "c", "d")...).breaks("p", Kill, 3, 100).lists(5, append(late("a", "b"), well("c", "d")...)...).lists(9, well("c", "d")...),
		},
		"half of it left when its way was back": {
			told: halves().breaks("way-p", Hole, 2, 5).breaks("p", Stop, 3.5, 100).lists(4.5, append(late("a", "b"), well("c", "d", "e")...)...).
				lists(5.01, well("c", "d", "e")...).says(5.02, PeerLeft, "p", "p-1", "a").says(5.02, PeerLeft, "p", "p-1", "b"),
		},
		"half of it removed before it was to leave": {
			told: halves().breaks("way-p", Hole, 2, 5).breaks("p", Stop, 4.6, 100).
				lists(4.5, well("c", "d", "e")...).says(5.02, PeerLeft, "p", "p-1", "a").says(5.02, PeerLeft, "p", "p-1", "b"),
			rules: []string{"guard", "guard"},
		},
		"half of it stopped, but never left": {
			told: halves().breaks("way-p", Hole, 2, 5).breaks("p", Stop, 3.5, 100).
				lists(4.5, append(late("a", "b"), well("c", "d", "e")...)...).lists(5.01, well("c", "d", "e")...),
			rules: []string{"guard", "guard"},
		},
		"one removed when the others had left": {
			told: halves().breaks("way-p", Hole, 2, 5).breaks("p", Stop, 3.5, 100).breaks("r", Kill, 2, 100).
				lists(4.5, append(late("a", "b", "e"), well("c", "d")...)...).
				says(5.02, PeerLeft, "p", "p-1", "a").says(5.02, PeerLeft, "p", "p-1", "b").lists(5.2, well("c", "d")...),
		},
		"half of it removed when the others had left": {
			told: halves().breaks("way-p", Hole, 2, 5).breaks("p", Stop, 3.5, 100).breaks("q", Kill, 2, 100).
				lists(4.5, append(late("a", "b", "c", "d"), well("e")...)...).
				says(5.02, PeerLeft, "p", "p-1", "a").says(5.02, PeerLeft, "p", "p-1", "b").lists(5.2, well("e")...),
			rules: []string{"guard", "guard"},
		},
		"two holders": {
			told:  told().provides(0, "p", "p-1", "a").provides(3, "q", "q-1", "a").lists(1, well("a")...),
			rules: []string{"two holders"},
		},
		"two holders for a moment": {
			told: told().provides(0, "p", "p-1", "a").provides(3, "q", "q-1", "a").says(3.4, PeerSuperseded, "p", "p-1", "a").lists(1, well("a")...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rules []string
			found, _ := CheckRegistry(&c.told.RegistryHistory)
			for _, v := range found {
				rules = append(rules, v.Rule)
			}
			if !slices.Equal(rules, c.rules) {
				t.Errorf("found %v, expected %v", found, c.rules)
			}
		})
	}
}

// TestRegistryUnrest: what is at rest is as it should be.
func TestRegistryUnrest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told *tale
		rest bool
	}{
		"well":           {told().provides(0, "p", "p-1", "a").lists(1, well("a")...), true},
		"nothing":        {told().lists(1), true},
		"no list":        {told(), false},
		"one is missing": {told().provides(0, "p", "p-1", "a").provides(0, "p", "p-1", "b").lists(1, well("a")...), false},
		"one too many":   {told().provides(0, "p", "p-1", "a").lists(1, well("a", "b")...), false},
		"late":           {told().provides(0, "p", "p-1", "a").lists(1, late("a")...), false},
		"not registered": {told().provides(0, "p", "p-1", "a").says(2, PeerWaits, "p", "p-1", "a").lists(1, well("a")...), false},
		"superseded":     {told().provides(0, "p", "p-1", "a").provides(1, "q", "q-1", "a").says(2, PeerSuperseded, "p", "p-1", "a").lists(1, well("a")...), true},
		"dead":           {told().provides(0, "p", "p-1", "a").lists(1, well("a")...).breaks("p", Kill, 2, 100), false},
		"dead and gone":  {told().provides(0, "p", "p-1", "a").lists(1, well("a")...).breaks("p", Kill, 2, 100).lists(9), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := c.told.Unrest(); (len(found) == 0) != c.rest {
				t.Errorf("found %v", found)
			}
		})
	}
}
