package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

// ErrEnded is returned by Reload once the agent has ended.
var ErrEnded = errors.New("agent: ended")

// profileWait is how long Reload waits until the schedulers have the new profile. The profile
// arrives later in any case.
const profileWait = 5 * time.Second

// reloadable lists the keys that can change while the agent runs, with everything inside them.
var reloadable = []string{
	"node.max_concurrency", "node.languages", "node.labels", "node.pools", "node.features", "services", "log.level",
}

// Reload applies the configuration that load returns. If that is not possible, Reload logs each bad
// key, changes nothing, and returns config.Problems. Running jobs go on with the executors with
// which they began. Checks that have not changed go on. After everything else Reload calls setLevel
// with log.level. ctx bounds the wait for Redis; its end does not undo the change.
//
// Calls run one after the other.
func (a *Agent) Reload(ctx context.Context, load func() (Config, error), setLevel func(level string)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrEnded
	}
	next, err := load()
	if err != nil {
		return a.refuse(err)
	}
	changed := changes(&a.cfg, &next)
	if problems := a.unfit(changed, &next); len(problems) > 0 {
		return a.refuse(problems)
	}
	if len(changed) == 0 {
		for _, s := range a.services {
			if err := a.retryLimits(s); err != nil {
				return a.refuse(err)
			}
		}
		a.metrics.countReload(reloadUnchanged)
		a.log.Info("config.unchanged")
		return nil
	}
	services, err := a.renew(&next)
	if err != nil {
		return a.refuse(err)
	}
	if err := a.apply(ctx, &next, services); err != nil {
		return a.refuse(err)
	}
	setLevel(next.Log.Level)
	a.metrics.countReload(reloadApplied)
	a.log.Info("config.reloaded", zap.Strings("changed", changed))
	return nil
}

// refuse logs each problem.
func (a *Agent) refuse(err error) error {
	a.metrics.countReload(reloadRefused)
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		problems = config.Problems{{Message: err.Error()}}
	}
	for _, p := range problems {
		a.log.Error("config.refused", zap.String("key", p.Path), zap.String(logging.FieldReason, p.String()))
	}
	return problems
}

// unfit returns the reasons that a valid configuration cannot follow the one in force.
func (a *Agent) unfit(changed []string, next *Config) config.Problems {
	var problems config.Problems
	for _, key := range changed {
		if !slices.ContainsFunc(reloadable, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") }) {
			problems.Addf(key, "has changed, which needs a restart of the agent")
		}
	}
	for i, s := range next.Services {
		one := Config{Services: []Service{s}}
		if one.interruptGrace() > a.grace {
			problems.Addf(fmt.Sprintf("services[%d].command.kill_grace", i),
				"is %s, which is longer than the agent waits when it stops: that was set at its start, "+
					"and needs a restart of the agent", config.FormatDuration(s.Command.KillGrace))
		}
	}
	return problems
}

// renew makes new executors where the configuration changed, and takes over the others.
func (a *Agent) renew(next *Config) (map[string]*service, error) {
	services := make(map[string]*service, len(next.Services))
	for i := range next.Services {
		name := next.Services[i].Name
		if old := a.services[name]; old != nil && old.madeOf(next.ingredients(i)) {
			if err := a.retryLimits(old); err != nil {
				return nil, err
			}
			services[name] = old
			continue
		}
		s, err := newService(next, i, a.log)
		if err != nil {
			return nil, err
		}
		if err := s.contain(a.limits); err != nil {
			return nil, err
		}
		services[name] = s
	}
	return services, nil
}

// retryLimits sets limits that could not be set before. With cgroup v2 that fails while commands
// run beside the agent, so it can succeed later without a change of the configuration.
func (a *Agent) retryLimits(s *service) error {
	if !s.lacksLimits() {
		return nil
	}
	if err := s.contain(a.limits); err != nil {
		return err
	}
	if !s.lacksLimits() {
		a.log.Info("limits.available", zap.String("service", s.name))
	}
	return nil
}

// apply reconfigures the worker, then retires the services that it no longer uses.
func (a *Agent) apply(ctx context.Context, next *Config, services map[string]*service) error {
	if err := a.reconfigure(ctx, next, services); err != nil {
		return err
	}
	for name, old := range a.services {
		if services[name] != old {
			old.retire()
		}
	}
	for _, name := range a.unknown(next) {
		a.announcer.setHealthy(name, false) // until its check succeeds
	}
	a.updateChecks(next)
	a.announcer.set(next.announced())
	a.cfg, a.services = *next, services
	return nil
}

// reconfigure returns when Redis has the new profile, or will have it.
func (a *Agent) reconfigure(ctx context.Context, next *Config, services map[string]*service) error {
	handlers := make(map[string]worker.HandlerFunc, len(services))
	for name, s := range services {
		handlers[name] = s.run
	}
	ctx, cancel := context.WithTimeout(ctx, profileWait)
	defer cancel()
	err := a.worker.Reconfigure(ctx, next.profile(), handlers, a.unknown(next)...)
	if err != nil && ctx.Err() != nil {
		a.log.Warn(
			"config.not_told",
			zap.String(logging.FieldReason, "the schedulers do not have the new profile yet; it is sent until they have"),
			zap.Error(err),
		)
		return nil
	}
	return err
}

// unknown returns the new services with a check.
func (a *Agent) unknown(next *Config) []string {
	var names []string
	for i := range next.Services {
		if s := &next.Services[i]; s.Check != nil && a.services[s.Name] == nil {
			names = append(names, s.Name)
		}
	}
	return names
}

// updateChecks starts and ends checks. An offered service stays offered until a check fails. A new
// service waits for its first success.
func (a *Agent) updateChecks(next *Config) {
	before := make(map[string]*Service, len(a.cfg.Services))
	for i := range a.cfg.Services {
		before[a.cfg.Services[i].Name] = &a.cfg.Services[i]
	}
	for i := range next.Services {
		s := &next.Services[i]
		old := before[s.Name]
		delete(before, s.Name)
		switch {
		case s.Check == nil:
			a.checks.Stop(s.Name)
			a.healthChanged(s.Name, nil)
		case old == nil:
			a.checks.Start(s.Name, s.Check, false)
		case !reflect.DeepEqual(old.Check, s.Check):
			a.checks.Start(s.Name, s.Check, true)
		}
	}
	for name := range before {
		a.checks.Stop(name)
	}
}

// changes returns the keys whose values differ, down to lists and maps, in the order of the fields.
func changes(a, b *Config) []string {
	return appendChanges(nil, "", reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func appendChanges(keys []string, path string, a, b reflect.Value) []string {
	if a.Kind() != reflect.Struct {
		if empty(a) && empty(b) || reflect.DeepEqual(a.Interface(), b.Interface()) {
			return keys
		}
		return append(keys, path)
	}
	for i := range a.NumField() {
		if name := a.Type().Field(i).Tag.Get("koanf"); name != "" {
			keys = appendChanges(keys, strings.TrimPrefix(path+"."+name, "."), a.Field(i), b.Field(i))
		}
	}
	return keys
}

// empty reports whether v is a list or map without entries, nil or not.
func empty(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}
