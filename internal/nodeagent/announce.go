package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/registry"
)

const (
	// announceCall bounds one call to the registry, and announceRetry is the pause after a failure.
	announceCall  = 3 * time.Second
	announceRetry = 5 * time.Second
)

// schemePorts are the ports of URLs that name none.
var schemePorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// validateAnnounce records why services[i] cannot be announced.
func (c *Config) validateAnnounce(i int, p *config.Problems) {
	s, at := &c.Services[i], fmt.Sprintf("services[%d]", i)
	switch {
	case !s.Announce:
		return
	case c.Gateway != "":
		p.Addf(at+".announce", "is set beside gateway, expected one of them: the registry is in Redis")
		return
	case s.Endpoint == "":
		p.Addf(at+".endpoint", "is missing, expected where all clients reach the service, because announce is set")
		return
	case p.Has(at+".endpoint") || p.Has(at+".name") || p.Has("node"):
		return // otherwise the checks below would only repeat it
	}
	err, ok := errors.AsType[*freeslot.Error](c.registration(s).WithDefaults().Validate())
	if !ok {
		return
	}
	for _, bad := range err.Errors {
		switch bad.Field {
		case "host", "port", "protocol":
			p.Addf(at+".endpoint", "cannot be announced, expected a URL with a port, or host:port: %s", bad.Message)
		default:
			p.Addf(at+".announce", "is not possible: %s", bad.Message)
		}
	}
}

// registration returns a service as an instance of the registry. The node's labels are its labels.
func (c *Config) registration(s *Service) registry.Registration {
	r := registry.Registration{Service: s.Name, ID: c.Node.ID, Metadata: map[string]string{}}
	maps.Copy(r.Metadata, c.Node.Labels)
	r.Metadata["node"] = c.Node.ID
	if s.Version != "" {
		r.Metadata["version"] = s.Version
	}
	var port string
	if u, err := url.Parse(s.Endpoint); err == nil && u.Host != "" {
		r.Metadata["url"] = s.Endpoint
		r.Protocol = strings.ToUpper(u.Scheme)
		r.Host, port = u.Hostname(), cmp.Or(u.Port(), schemePorts[u.Scheme])
	} else {
		r.Host, port, _ = net.SplitHostPort(s.Endpoint) // Validate refuses fields that are left empty
	}
	r.Port, _ = strconv.Atoi(port)
	return r
}

// announced returns the services that are registered for everyone, by name.
func (c *Config) announced() map[string]registry.Registration {
	out := make(map[string]registry.Registration)
	for i := range c.Services {
		if s := &c.Services[i]; s.Announce {
			out[s.Name] = c.registration(s)
		}
	}
	return out
}

// announcer keeps services registered. It has a connection of its own: the worker's connection
// leads only to the server of the node's cell, and the registry can be on another one. Without a
// service to announce it has neither a connection nor a goroutine.
type announcer struct {
	provider *registry.Provider // nil with a gateway, which leads to no registry
	log      *zap.Logger
	wake     chan struct{} // has room for one
	ctx      context.Context
	cancel   context.CancelFunc
	loop     sync.WaitGroup

	mu       sync.Mutex
	begun    bool                             // guarded by mu
	want     map[string]registry.Registration // guarded by mu
	failing  map[string]bool                  // guarded by mu
	draining bool                             // guarded by mu
}

func newAnnouncer(cfg *Config, log *zap.Logger) (*announcer, error) {
	n := &announcer{log: log, wake: make(chan struct{}, 1), failing: make(map[string]bool)}
	if cfg.Gateway == "" {
		var err error
		if n.provider, err = registry.NewProvider(registry.Options{
			RedisURL: config.FirstURL(cfg.Redis.URL, cfg.Redis.URLs), Access: cfg.Redis.access(),
			// The services live on without the agent, so no consumer has to turn away before the
			// agent ends.
			KeyPrefix: cfg.Redis.KeyPrefix, Namespace: cfg.Registry.Namespace, StopPause: -1, Logger: log,
		}); err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// set takes over the services to announce.
func (n *announcer) set(want map[string]registry.Registration) {
	n.change(func() {
		n.want = want
		if !n.begun && len(want) > 0 && n.ctx.Err() == nil {
			n.begun = true
			n.loop.Go(n.run)
		}
	})
}

// setHealthy records whether a service is well.
func (n *announcer) setHealthy(service string, healthy bool) {
	n.change(func() { n.failing[service] = !healthy })
}

// drain marks all services: the node is about to end.
func (n *announcer) drain() { n.change(func() { n.draining = true }) }

func (n *announcer) change(change func()) {
	n.mu.Lock()
	change()
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default: // a value is waiting, and its reader sees this change, too
	}
}

// close ends the registrations. It can be called twice.
func (n *announcer) close(ctx context.Context) error {
	n.mu.Lock()
	n.cancel() // so that set begins no loop
	n.mu.Unlock()
	n.loop.Wait()
	if n.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, announceCall)
	defer cancel()
	return n.provider.Stop(ctx)
}

// run tells the provider of each change, until close.
func (n *announcer) run() {
	told := make(map[string]registry.Registration)
	outage := logging.NewOutage(n.log, "registry.not_announced", "registry.announced")
	for {
		var retry <-chan time.Time
		if err := n.tell(told); err == nil {
			outage.Over()
		} else if n.ctx.Err() == nil {
			outage.Failed(err)
			retry = time.After(announceRetry)
		}
		select {
		case <-n.ctx.Done():
			return
		case <-n.wake:
		case <-retry:
		}
	}
}

// tell makes the provider's instances equal to the wanted ones. told holds the instances that the
// provider has been told about; the provider itself retries them.
func (n *announcer) tell(told map[string]registry.Registration) (failed error) {
	ctx, cancel := context.WithTimeout(n.ctx, announceCall)
	defer cancel()
	if !n.provider.Running() {
		if err := n.provider.Start(ctx); err != nil {
			return err
		}
	}
	want := n.wanted()
	for service, r := range told {
		if _, ok := want[service]; !ok {
			delete(told, service)
			_ = n.provider.Deregister(ctx, service, r.ID) // the provider goes on trying
		}
	}
	for service, r := range want {
		if reflect.DeepEqual(told[service], r) {
			continue
		}
		err := n.provider.Register(ctx, r)
		switch {
		case freeslot.CodeOf(err) == freeslot.CodeInvalidArgument:
			n.log.Error("registry.announce_refused", zap.String("service", service), zap.Error(err))
		case err != nil && !errors.As(err, new(*registry.HolderError)): // the provider logs it
			failed = errors.Join(failed, err)
			continue
		}
		told[service] = r
	}
	return failed
}

// wanted returns what the registry should have now.
func (n *announcer) wanted() map[string]registry.Registration {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := maps.Clone(n.want)
	for service, r := range out {
		r.Unhealthy, r.Draining = n.failing[service], n.draining
		out[service] = r
	}
	return out
}
