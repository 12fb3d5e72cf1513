package config

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/selection"
)

// Autoscale says how nodes are started and stopped.
type Autoscale struct {
	// The command that starts and stops nodes of a pool (docs/autoscaling.md).
	Exec AutoscaleExec `koanf:"exec"`
}

// AutoscaleExec is a command that starts and stops nodes.
type AutoscaleExec struct {
	// The program and its arguments, which no shell reads. `{pool}` and `{nodes}` in the arguments
	// stand for the pool and for the number of nodes that it should have. Unset: none runs.
	Argv []string `koanf:"argv"`
	// The pools whose nodes it starts and stops. It runs for those with a `target_wait`.
	Pools []string `koanf:"pools"`
	// The fewest nodes that it asks for in each pool, up to `autoscale.exec.max_nodes`. 0 only for pools
	// with `expects`: in others, jobs are refused while there is no node.
	MinNodes int `koanf:"min_nodes"`
	// The most nodes that it asks for in each pool, 1 to 100000. While more run jobs, it does not run.
	MaxNodes int `koanf:"max_nodes"`
	// The variables of the scheduler's environment that the program gets.
	PassEnv []string `koanf:"pass_env"`
	// The least time between two runs for a pool, at all replicas together, 11s to 1h.
	Cooldown time.Duration `koanf:"cooldown"`
	// How long a run may take before it is ended, by SIGTERM and after five seconds by SIGKILL. From
	// 1s to ten seconds less than `autoscale.exec.cooldown`.
	Timeout time.Duration `koanf:"timeout"`
}

// betweenRuns is the least time from the end of a run to the next one, at any replica.
const betweenRuns = 10 * time.Second

// On reports whether a command is configured.
func (a *AutoscaleExec) On() bool { return len(a.Argv) > 0 }

var (
	argvPart     = regexp.MustCompile(`\{[^{}]*\}`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (a *AutoscaleExec) validate(p *Problems) {
	p.DurationBetween("autoscale.exec.cooldown", a.Cooldown, betweenRuns+time.Second, time.Hour)
	p.DurationBetween("autoscale.exec.timeout", a.Timeout, time.Second, max(a.Cooldown-betweenRuns, time.Second))
	for i, name := range a.PassEnv {
		if !variableName.MatchString(name) {
			p.Addf(element("autoscale.exec.pass_env", i), "is %q, expected the name of a variable", name)
		}
	}
	if !a.On() {
		if len(a.Pools) > 0 || a.MaxNodes != 0 {
			p.Addf("autoscale.exec.argv", "is missing, expected a program and its arguments")
		}
		return
	}
	a.validateArgv(p)
	p.Between("autoscale.exec.max_nodes", a.MaxNodes, 1, 100_000)
	p.Between("autoscale.exec.min_nodes", a.MinNodes, 0, max(a.MaxNodes, 1))
	if len(a.Pools) == 0 || len(a.Pools) > selection.MaxConfiguredPools {
		p.Addf("autoscale.exec.pools", "has %d names, expected 1 to %d", len(a.Pools), selection.MaxConfiguredPools)
	}
	for i, pool := range a.Pools {
		p.Name(element("autoscale.exec.pools", i), pool)
		if slices.Index(a.Pools, pool) != i {
			p.Addf(element("autoscale.exec.pools", i), "is %q again, expected each pool once", pool)
		}
	}
}

func (a *AutoscaleExec) validateArgv(p *Problems) {
	if _, err := exec.LookPath(a.Argv[0]); err != nil {
		p.Add(element("autoscale.exec.argv", 0), err)
	}
	told := false
	for i, arg := range a.Argv {
		if strings.ContainsRune(arg, 0) {
			p.Addf(element("autoscale.exec.argv", i), "has a zero byte")
		}
		for _, part := range argvPart.FindAllString(arg, -1) {
			if i == 0 || part != "{pool}" && part != "{nodes}" {
				p.Addf(element("autoscale.exec.argv", i), "has %s, expected {pool} or {nodes}, and neither in the program", part)
			}
			told = told || part == "{nodes}"
		}
	}
	if !told {
		p.Addf("autoscale.exec.argv", "has no {nodes}, expected an argument with it: the program could not know how many")
	}
}
