package faults

import (
	"cmp"
	"slices"
	"time"
)

// PeerKind tells what a PeerEvent is.
type PeerKind string

// The kinds of a PeerEvent. About an instance: it is to be registered from now on; Redis has it, or
// has it not, as far as its provider knows; another provider has taken it; it was deregistered in
// good order. About a service: it is followed from now on; its list has changed.
const (
	PeerProvides   PeerKind = "provides"
	PeerRegistered PeerKind = "registered"
	PeerWaits      PeerKind = "waits"
	PeerSuperseded PeerKind = "superseded"
	PeerLeft       PeerKind = "left"
	PeerFollows    PeerKind = "follows"
	PeerSaw        PeerKind = "saw"
)

// PeerEvent is a line in the log of a registrypeer.
type PeerEvent struct {
	// At is a time of Clock, and in a RegistryHistory the time since its beginning.
	At   time.Duration `json:"at"`
	Kind PeerKind      `json:"kind"`
	// Peer is the program, and Life is one process of it.
	Peer    string `json:"peer"`
	Life    string `json:"life"`
	Service string `json:"service"`
	ID      string `json:"id,omitempty"`
	// Address is the address of a provided instance.
	Address string    `json:"address,omitempty"`
	List    *SeenList `json:"list,omitempty"`
}

// SeenList is the list of a service in the form of a consumer.
type SeenList struct {
	State    string `json:"state"`
	Why      string `json:"why,omitempty"`
	Revision int64  `json:"revision"`
	// HealthyState and HealthyWhy belong to its healthy part. Last is set there if late instances
	// stand in.
	HealthyState string         `json:"healthy_state"`
	HealthyWhy   string         `json:"healthy_why,omitempty"`
	Last         bool           `json:"last,omitempty"`
	Instances    []SeenInstance `json:"instances"`
}

// SeenInstance is an instance in a SeenList.
type SeenInstance struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// Life is the process that says that it is this instance; empty if the instance names none.
	Life        string `json:"life,omitempty"`
	Late        bool   `json:"late,omitempty"`
	Unconfirmed bool   `json:"unconfirmed,omitempty"`
	// Healthy is true if it is in the healthy part.
	Healthy bool `json:"healthy,omitempty"`
}

// Trouble tells what was broken, and when. A target that is neither a program nor a way concerns
// all.
type Trouble struct {
	Target   string
	Action   Action
	From, To time.Duration
}

// RegistryTimes are the times by which a run is judged.
type RegistryTimes struct {
	// Interval is the interval of heartbeats, Timeout the consumers' T, Look the time from one look
	// to the next, Limit the limit of cleanup. Slack is what a busy machine may add.
	Interval, Timeout, Look, Limit, Slack time.Duration
}

// noticed returns how long a change may take until all have noticed it.
func (r RegistryTimes) noticed() time.Duration { return r.Interval + r.Look + r.Slack }

// RegistryHistory holds what happened in a run, by the time since its beginning.
type RegistryHistory struct {
	RegistryTimes
	Events   []PeerEvent
	Troubles []Trouble
	// Loses is true if Redis may have lost what it has acknowledged.
	Loses bool
	// Begin is the time at which the run began, by Clock.
	Begin time.Duration
	// End is the time at which the run was over; 0 is never.
	End time.Duration
}

// instanceName names an instance.
type instanceName struct{ service, id string }

func (n instanceName) String() string { return n.service + "/" + n.id }

// peerLife is one process of a registrypeer.
type peerLife struct {
	peer, life string
	// ran lasts from its first word to its end.
	ran    span
	events []*PeerEvent
	// provides holds its instances, follows its services.
	provides []instanceName
	follows  []string
	// over holds the times at which an instance was superseded or had left.
	over map[instanceName]time.Duration
	// addresses holds the addresses of its instances.
	addresses map[instanceName]string
	// registered holds the times at which it took an instance to be registered.
	registered map[instanceName]spans
	// lists holds what it saw of a service.
	lists map[string][]*PeerEvent
}

// lives returns all processes, in order of time.
func (h *RegistryHistory) lives() (out []*peerLife) {
	index := map[string]*peerLife{}
	for i := range h.Events {
		e := &h.Events[i]
		l := index[e.Life]
		if l == nil {
			l = &peerLife{
				peer: e.Peer, life: e.Life, ran: span{e.At, h.endOf(e.Peer, e.At)}, over: map[instanceName]time.Duration{},
				addresses: map[instanceName]string{}, registered: map[instanceName]spans{}, lists: map[string][]*PeerEvent{},
			}
			index[e.Life] = l
			out = append(out, l)
		}
		l.events = append(l.events, e)
	}
	for _, l := range out {
		l.read()
	}
	slices.SortFunc(out, func(a, b *peerLife) int { return cmp.Compare(a.ran.from, b.ran.from) })
	return out
}

// endOf returns the time at which the process of a program ended that began to speak at a moment.
func (h *RegistryHistory) endOf(peer string, from time.Duration) time.Duration {
	end := forever
	for _, t := range h.Troubles {
		if t.Target == peer && (t.Action == Kill || t.Action == Stop) && t.From >= from {
			end = min(end, t.From)
		}
	}
	return end
}

// read takes over what the events say.
func (l *peerLife) read() {
	since := map[instanceName]time.Duration{}
	slices.SortStableFunc(l.events, func(a, b *PeerEvent) int { return cmp.Compare(a.At, b.At) })
	for _, e := range l.events {
		name := instanceName{e.Service, e.ID}
		switch e.Kind {
		case PeerProvides:
			l.provides = append(l.provides, name)
			l.addresses[name] = e.Address
		case PeerFollows:
			l.follows = append(l.follows, e.Service)
		case PeerSaw:
			l.lists[e.Service] = append(l.lists[e.Service], e)
		case PeerRegistered:
			since[name] = e.At
			continue
		case PeerSuperseded, PeerLeft:
			l.over[name] = e.At
		}
		if from, is := since[name]; is && e.ID != "" {
			l.registered[name] = append(l.registered[name], span{from, e.At})
			delete(since, name)
		}
	}
	for name, from := range since {
		l.registered[name] = append(l.registered[name], span{from, l.ran.to})
	}
}

// saw is a list and the time for which it was in force.
type saw struct {
	span
	*SeenList
}

// seen returns the lists of a service. The first one is empty and in force until there is one.
func (l *peerLife) seen(service string) []saw {
	out := []saw{{span{l.ran.from, l.ran.to}, nil}}
	for _, e := range l.lists[service] {
		out[len(out)-1].to = e.At
		out = append(out, saw{span{e.At, l.ran.to}, e.List})
	}
	return out
}

// instance returns what a list says about an instance; nil if it is not there.
func (s *SeenList) instance(id string) *SeenInstance {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Instances, func(in SeenInstance) bool { return in.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Instances[i]
}
