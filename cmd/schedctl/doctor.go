package main

import (
	"net/http"
	"net/url"

	"github.com/freeslot/freeslot/internal/finding"
)

type doctorCmd struct{}

// Help is shown below the flags.
func (doctorCmd) Help() string {
	return `What the replica that answers finds wrong, as status does, and what it finds when it looks closely at the
servers of Redis: docs/redis.md has what it checks. What the replica's user of Redis may not read is named as not
checked; "scheduler doctor" asks Redis by itself, as another user if you like.

Exit codes: 0 all is well; 1 there are warnings, or a part could not say; 2 something is critical, or no replica
answers.`
}

// Run shows what is wrong. What it finds decides about the exit code.
func (doctorCmd) Run(a *app) error {
	var report finding.Report
	query := url.Values{"doctor": {"true"}}
	if err := a.call(http.MethodGet, "/v1/findings", query, nil, &report); err != nil {
		return exitError{exitTrouble, err}
	}
	if a.json {
		if err := a.printJSON(&report); err != nil {
			return err
		}
	} else {
		for _, line := range report.Lines() {
			_ = a.println("%s", clean(line))
		}
	}
	if code, why := report.Verdict(); code != exitOK {
		return exitError{code, why}
	}
	return nil
}
