package main

import (
	"encoding/json"
	"fmt"

	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/replica"
)

type doctorCmd struct {
	configFlags
	JSON bool `name:"json" help:"Print JSON."`
}

// Help is shown below the flags.
func (doctorCmd) Help() string {
	return `Reads the configuration as serve does, and asks Redis by itself: settings, the time of a call, clocks, slow
calls, deleted keys, persistence, replication, the builds of replicas that run, certificates and tokens. docs/redis.md
has what it checks and why. It changes nothing.

What its user of Redis may not read is named as not checked. "schedctl acl --role doctor" makes a user that may read it:
  scheduler doctor --config scheduler.yaml --set redis.username=doctor --set redis.password_file=doctor.password

Exit codes: 0 all is well; 1 there are warnings, or a part could not say; 2 something is critical, or Redis cannot be
reached; 78 the configuration is invalid.`
}

// Run shows what is wrong. What it finds decides about the exit code.
func (c *doctorCmd) Run(env *environment) error {
	cfg, err := c.load(env.environ)
	if err != nil {
		return err
	}
	report, err := replica.Doctor(env.ctx, cfg)
	if err != nil {
		return exitError{2, err}
	}
	if err := c.print(env, &report); err != nil {
		return err
	}
	if code, why := report.Verdict(); code != exitOK {
		return exitError{code, why}
	}
	return nil
}

func (c *doctorCmd) print(env *environment, report *finding.Report) error {
	if c.JSON {
		out := json.NewEncoder(env.out)
		out.SetIndent("", "  ")
		return out.Encode(report)
	}
	for _, line := range report.Lines() {
		if _, err := fmt.Fprintln(env.out, line); err != nil {
			return err
		}
	}
	return nil
}
