package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// replicaService is the service that replicas register with. urlLabel is the label with their URLs.
const (
	replicaService = "freeslot-scheduler"
	urlLabel       = "url"
)

// self registers this replica as an instance of its own service.
type self struct {
	cfg      *config.Replica
	store    *registry.Store
	log      *zap.Logger
	provider *registry.Provider // nil before start, and if nothing is advertised
}

func newSelf(env *feature.Env, store *registry.Store) *self {
	return &self{cfg: &env.Config, store: store, log: env.Log.Named("registry")}
}

// start registers the replica. If Redis does not answer yet, the provider goes on trying.
func (s *self) start(ctx context.Context) error {
	host, port, err := s.cfg.Advertised()
	if err != nil || s.cfg.Advertise == "" {
		return err
	}
	// No pause here: a replica that stops has a delay of its own, and informs its clients.
	s.provider, err = registry.NewProviderOn(s.store, registry.Options{
		KeyPrefix: s.cfg.Redis.KeyPrefix, Namespace: s.cfg.Registry.Namespace, StopPause: -1, Logger: s.log,
	})
	if err != nil {
		return err
	}
	if err := s.provider.Start(ctx); err != nil {
		return err
	}
	err = s.provider.Register(ctx, registrationOf(s.cfg, host, port))
	if errors.Is(err, &freeslot.Error{Code: freeslot.CodeInvalidArgument}) {
		return err
	}
	if err != nil {
		s.log.Warn("registry.advertise_later", zap.Error(err))
	}
	return nil
}

func registrationOf(cfg *config.Replica, host string, port int) registry.Registration {
	scheme, _, _ := strings.Cut(cfg.Advertise, ":")
	return registry.Registration{
		Service: replicaService, ID: cfg.ReplicaID, Host: host, Port: port, Protocol: strings.ToUpper(scheme),
		Metadata: map[string]string{urlLabel: cfg.Advertise},
	}
}

// Check returns what the registry would refuse of a configuration at the start. It contacts no
// server.
func Check(cfg *config.Replica) error {
	err := consumerOptions(cfg).WithDefaults().Validate()
	if host, port, bad := cfg.Advertised(); err == nil && bad == nil && cfg.Advertise != "" {
		if err = registrationOf(cfg, host, port).WithDefaults().Validate(); err != nil {
			err = fmt.Errorf(
				"advertise is %q, which is no address of an instance of service %s: %w", cfg.Advertise, replicaService, err,
			)
		}
	}
	return err
}

func consumerOptions(cfg *config.Replica) registry.ConsumerOptions {
	return registry.ConsumerOptions{
		RedisURL: cmp.Or(cfg.Redis.URL, slices.Concat(cfg.Redis.URLs, []string{""})[0]), KeyPrefix: cfg.Redis.KeyPrefix,
		Namespace: cfg.Registry.Namespace,
	}
}

func (s *self) stop(ctx context.Context) error {
	if s.provider == nil {
		return nil
	}
	return s.provider.Stop(ctx)
}
