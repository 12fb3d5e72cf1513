// Package resolver lets clients of grpc-go find the instances of a service of the registry:
//
//	grpc.NewClient("freeslot:///asr", grpc.WithResolvers(resolver.New(consumer)))
//
// grpc-go connects to all usable instances and balances over them as its service config says.
// Their weights and zones are attributes, for balancers that read them.
package resolver

import (
	"net"
	"strconv"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
)

// Scheme is the scheme of targets: freeslot:///service.
const Scheme = "freeslot"

// Follower follows services. It calls f at once with the current list, if there is one, and later
// with each new one. It makes one call at a time, until stop is called. A consumer of the registry
// is a Follower.
type Follower interface {
	Follow(service string, f func(*registry.List)) (stop func())
}

// New returns a builder for [google.golang.org/grpc.WithResolvers]. The follower must outlive
// grpc's connections.
func New(from Follower) resolver.Builder { return builder{from} }

type builder struct{ from Follower }

func (builder) Scheme() string { return Scheme }

// Build follows the service of a target.
func (b builder) Build(
	target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	service := target.Endpoint()
	if err := freeslot.ValidateName("target.service", service); err != nil {
		return nil, err
	}
	p := &pusher{cc: cc}
	return following{b.from.Follow(service, p.push)}, nil
}

type following struct{ stop func() }

// ResolveNow has nothing to do: lists come when they change.
func (following) ResolveNow(resolver.ResolveNowOptions) {}

func (f following) Close() { f.stop() }

// pusher hands lists to grpc.
type pusher struct {
	cc resolver.ClientConn
	// filled is true while grpc has instances.
	filled bool
}

// push reports why a list is empty. Before that, it takes away the instances that grpc still has,
// since grpc would go on calling disabled ones. Calls then fail with the reason. Only round_robin,
// once it has had instances, fails with a message of its own; the reason is then in grpc's log.
func (p *pusher) push(list *registry.List) {
	if list == nil {
		return
	}
	state := resolver.State{Endpoints: []resolver.Endpoint{}}
	list = list.Healthy()
	for _, i := range list.Instances {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses:  []resolver.Address{{Addr: net.JoinHostPort(i.Host, strconv.Itoa(i.Port))}},
			Attributes: attributes.New(weightKey{}, i.Weight).WithValue(zoneKey{}, i.Metadata["zone"]),
		})
	}
	empty := len(state.Endpoints) == 0
	if !empty || p.filled {
		// An error would make grpc resolve again, but lists come when they change.
		_ = p.cc.UpdateState(state)
	}
	if p.filled = !empty; empty {
		p.cc.ReportError(list.EmptyError())
	}
}

type weightKey struct{}

type zoneKey struct{}

// Weight returns the weight of an instance, for a balancer that has the attributes of its endpoint;
// 1 without a weight.
func Weight(endpoint *attributes.Attributes) float64 {
	if w, ok := endpoint.Value(weightKey{}).(float64); ok && w > 0 {
		return w
	}
	return 1
}

// Zone returns the zone of an instance from the attributes of its endpoint; empty without a zone.
func Zone(endpoint *attributes.Attributes) string {
	zone, _ := endpoint.Value(zoneKey{}).(string)
	return zone
}
