// Package server adds name lists to a replica: the routes of operators, the work of package
// manage, and the routes of package reader.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/manage"
	"github.com/freeslot/freeslot/internal/namelist/reader"
	"github.com/freeslot/freeslot/internal/namelist/source"
	"github.com/freeslot/freeslot/internal/namelist/statistics"
)

// Module adds name lists to a replica. Its needs in Redis are namelist.Access and build.Access.
var Module = feature.Module{Name: "lists", Schedulers: true, New: newPart}

func newPart(env *feature.Env) feature.Part {
	cfg, log := &env.Config, env.Log.Named("lists")
	cluster := env.Runners[0].Layout().Sharded
	control := namelist.NewControl(env.Commands(0), cfg.Redis.KeyPrefix, cluster, log, nil)
	s := newServers(env)
	dir := cmp.Or(cfg.Lists.Dir, filepath.Join(os.TempDir(), "freeslot-lists-"+cfg.ReplicaID))
	var known []namelist.Server
	for name, server := range cfg.Lists.Servers {
		known = append(
			known, namelist.Server{Name: name, Addresses: []string{address(server.URL)}, MaxBytes: server.MaxBytes},
		)
	}
	a := &approvals{control: control, log: log}
	if len(cfg.Tokens) > 0 || cfg.TokensFile != "" || cfg.Auth.OIDC.On() { // else there is no other admin
		a.policy = cfg.Lists.Approval
	}
	m := manage.New(
		manage.Config{
			Self: cfg.ReplicaID, URL: cfg.Advertise, Dir: dir, Server: s.open, Servers: known, Metrics: env.Metrics,
			Permit: a.permitUpload,
		},
		control, log,
	)
	a.manager = m
	sources, runner := newSources(env, control, permitted{m, a})
	keeper := statistics.New(control, log, env.Metrics)
	readers := reader.New(reader.Config{Subscriptions: env.Subscriber(0), Server: s.open, Log: log}, control)
	start := func(ctx context.Context) error {
		for _, server := range known {
			if err := control.PutServer(ctx, server); err != nil {
				return fmt.Errorf("list server %s: %w", server.Name, err)
			}
		}
		if cfg.Lists.Dir != "" {
			if err := usable(dir); err != nil {
				return err
			}
		}
		if err := m.Start(ctx); err != nil {
			return err // it has started nothing, and a step that failed is not stopped
		}
		return errors.Join(keeper.Start(ctx), readers.Start(ctx), runner.Start(ctx))
	}
	stop := func(ctx context.Context) error {
		err := errors.Join(runner.Stop(ctx), readers.Stop(ctx), keeper.Stop(ctx), m.Stop(ctx))
		s.close()
		if _, missing := os.Lstat(dir); cfg.Lists.Dir == "" && missing == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	lists := routes{
		control: control, manager: m, own: env.Lists, url: cfg.Advertise, approvals: a, sources: sources,
		sourceNames: slices.Sorted(maps.Keys(cfg.Lists.Sources)),
	}
	return feature.Part{
		Step: feature.Step{Start: start, Stop: stop},
		Routes: []api.Routes{
			routesOf(&lists), statisticsOf(&lists, keeper), readers.Routes,
		},
		Findings: []finding.Source{source.Findings(sources, cfg.Findings.SourceLate, m.Serving), m.Damaged()},
	}
}

// usable makes the configured folder, and tries to make a file in it. Without a configured folder,
// one is made when it is first needed: not every replica has lists.
func usable(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".probe-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("lists.dir is %q, which cannot be used: %w", dir, err)
	}
	return nil
}
