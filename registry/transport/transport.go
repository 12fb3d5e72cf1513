// Package transport lets clients of net/http call the services of the registry by name:
//
//	client := &http.Client{Transport: transport.New(transport.Config{}, consumer)}
//	client.Get("http://asr/recognize")
package transport

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
)

// Follower follows services. It calls f at once with the current list, if there is one, and later
// with each new one. It makes one call at a time, until stop is called. A consumer of the registry
// is a Follower.
type Follower interface {
	Follow(service string, f func(*registry.List)) (stop func())
}

// Config says how instances are picked. The zero value picks by weight.
type Config struct {
	// Policy is random, round_robin, weighted, least_loaded or consistent_hash; empty means
	// weighted.
	Policy pick.Policy
	// Zone is the caller's own zone, whose instances are preferred. Empty means that zones do not
	// matter.
	Zone string
	// LoadFactor applies to consistent_hash: an instance gets at most that many times its share of
	// the calls under way, 1 to 100. Zero means 1.25.
	LoadFactor float64
	// Filter selects the instances of each service to choose from; nil means all.
	Filter *registry.Filter
	// Calls measures the time from sending a request to the head of its response; nil measures
	// nothing.
	Calls *pick.Calls
	// Key returns the key of a request for consistent_hash, such as a session. nil means its path.
	Key func(*http.Request) string
	// Base sends requests to instances. nil means http.DefaultTransport.
	Base http.RoundTripper
}

func (c Config) pick() pick.Config {
	return pick.Config{Policy: c.Policy, Zone: c.Zone, LoadFactor: c.LoadFactor, Filter: c.Filter}
}

// Validate returns an error that names every bad field.
func (c Config) Validate() error { return c.pick().Validate() }

// Transport is an [http.RoundTripper] for URLs whose host is the name of a service. It follows each
// service from the first request until Close, so programs should not take names from their users.
// It is safe for concurrent use.
//
// A request counts as a success for picking if it was answered, with any status. An instance that
// takes no connections is set aside for 1 s, and twice as long each further time, up to 30 s. The
// request is then sent to another instance, once, if its body can be read again.
type Transport struct {
	cfg  Config
	from Follower

	mu sync.Mutex
	// services holds the followed services; nil after Close. Guarded by mu.
	services map[string]*service
}

// New returns a Transport. cfg must be valid.
func New(cfg Config, from Follower) *Transport {
	if cfg.Key == nil {
		cfg.Key = func(req *http.Request) string { return req.URL.Path }
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	return &Transport{cfg: cfg, from: from, services: map[string]*service{}}
}

// Close stops following services. Requests under way continue; later ones fail with
// registry.ErrClosed.
func (t *Transport) Close() {
	t.mu.Lock()
	services := t.services
	t.services = nil
	t.mu.Unlock()
	for _, s := range services {
		s.stop()
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// RoundTrip sends a request to an instance of the service that its URL names. It waits for the
// first list of the service. It ignores a port in the URL. The Host header names the instance,
// unless the request sets its own.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, sent, err := t.roundTrip(req)
	if err != nil && !sent && req.Body != nil {
		_ = req.Body.Close()
	}
	return resp, err
}

// roundTrip reports in sent whether the base has received the request, and so must close its body.
func (t *Transport) roundTrip(req *http.Request) (resp *http.Response, sent bool, err error) {
	s, err := t.service(req.URL.Hostname())
	if err != nil {
		return nil, false, err
	}
	picker, err := s.ready(req.Context())
	if err != nil {
		return nil, false, err
	}
	key := t.cfg.Key(req)
	first, err := picker.Pick(req.Context(), key)
	if err != nil {
		return nil, false, err
	}
	resp, err = t.send(req, first)
	if !errors.Is(err, pick.ErrUnavailable) {
		return resp, true, err
	}
	again, ok := repeat(req)
	if !ok {
		return nil, true, err
	}
	other, otherErr := picker.PickOther(req.Context(), key, first)
	if otherErr != nil {
		if again.Body != nil {
			_ = again.Body.Close()
		}
		return nil, true, err
	}
	resp, err = t.send(again, other)
	return resp, true, err
}

// repeat returns the request with a new body, if there is one. It repeats requests of any method:
// the first try had no connection.
func repeat(req *http.Request) (*http.Request, bool) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, false
	}
	again := *req
	again.Body = body
	return &again, true
}

// send sends the request to an instance. The pick is done when the body of the response ends.
func (t *Transport) send(req *http.Request, to pick.Picked) (*http.Response, error) {
	out := req.Clone(req.Context())
	if out.Host == out.URL.Host {
		out.Host = ""
	}
	out.URL.Host = net.JoinHostPort(to.Instance.Host, strconv.Itoa(to.Instance.Port))
	began := time.Now()
	resp, err := t.cfg.Base.RoundTrip(out)
	t.cfg.Calls.Add(to.Instance.Service, time.Since(began), err)
	if err != nil {
		var op *net.OpError
		if req.Context().Err() == nil && errors.As(err, &op) && op.Op == "dial" {
			err = fmt.Errorf("%w: %w", pick.ErrUnavailable, err)
		}
		to.Done(err)
		return nil, err
	}
	resp.Body = newBody(resp.Body, to)
	return resp, nil
}

// service returns a followed service.
func (t *Transport) service(name string) (*service, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.services == nil {
		return nil, registry.ErrClosed
	}
	if s := t.services[name]; s != nil {
		return s, nil
	}
	if err := freeslot.ValidateName("url.host", name); err != nil {
		return nil, err
	}
	s := &service{listed: make(chan struct{})}
	s.picker = pick.New(t.cfg.pick(), s)
	s.stop = t.from.Follow(name, s.set)
	t.services[name] = s
	return s, nil
}
