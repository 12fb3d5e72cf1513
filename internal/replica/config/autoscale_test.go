package config

import (
	"testing"
	"time"
)

func TestAutoscale(t *testing.T) {
	t.Parallel()
	good := AutoscaleExec{
		Argv: []string{"true", "{pool}={nodes}"}, Pools: []string{"gpu", "cpu"}, MinNodes: 1, MaxNodes: 20, PassEnv: []string{"PATH"},
		Cooldown: 2 * time.Minute, Timeout: time.Minute,
	}
	for name, test := range map[string]struct {
		change func(*AutoscaleExec)
		want   string // the path of the only problem
	}{
		"valid":               {func(*AutoscaleExec) {}, ""},
		"off":                 {func(a *AutoscaleExec) { a.Argv, a.Pools, a.MaxNodes = nil, nil, 0 }, ""},
		"pools without argv":  {func(a *AutoscaleExec) { a.Argv = nil }, "autoscale.exec.argv"},
		"no such program":     {func(a *AutoscaleExec) { a.Argv = []string{"/dev/null/none", "{nodes}"} }, "autoscale.exec.argv[0]"},
		"zero byte":           {func(a *AutoscaleExec) { a.Argv = []string{"true", "{nodes}\x00"} }, "autoscale.exec.argv[1]"},
		"unknown part":        {func(a *AutoscaleExec) { a.Argv = []string{"true", "{nodes}", "{zone}"} }, "autoscale.exec.argv[2]"},
		"no number":           {func(a *AutoscaleExec) { a.Argv = []string{"true", "{pool}"} }, "autoscale.exec.argv"},
		"no pools":            {func(a *AutoscaleExec) { a.Pools = nil }, "autoscale.exec.pools"},
		"a bad name":          {func(a *AutoscaleExec) { a.Pools = []string{"a b"} }, "autoscale.exec.pools[0]"},
		"a pool twice":        {func(a *AutoscaleExec) { a.Pools = []string{"gpu", "gpu"} }, "autoscale.exec.pools[1]"},
		"no bound":            {func(a *AutoscaleExec) { a.MaxNodes = 0 }, "autoscale.exec.max_nodes"},
		"more at least":       {func(a *AutoscaleExec) { a.MinNodes = 21 }, "autoscale.exec.min_nodes"},
		"a bad variable":      {func(a *AutoscaleExec) { a.PassEnv = []string{"A=B"} }, "autoscale.exec.pass_env[0]"},
		"a short cool-down":   {func(a *AutoscaleExec) { a.Cooldown, a.Timeout = time.Second, time.Second }, "autoscale.exec.cooldown"},
		"a run that overlaps": {func(a *AutoscaleExec) { a.Timeout = 2*time.Minute - 9*time.Second }, "autoscale.exec.timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good
			test.change(&cfg)
			var problems Problems
			cfg.validate(&problems)
			if test.want == "" && len(problems) > 0 || test.want != "" && (len(problems) != 1 || problems[0].Path != test.want) {
				t.Errorf("found %v; want a problem at %q alone", problems, test.want)
			}
		})
	}
	var problems Problems
	def := DefaultReplica()
	def.Autoscale.Exec.validate(&problems)
	if len(problems) > 0 {
		t.Errorf("the defaults have problems: %v", problems)
	}
}
