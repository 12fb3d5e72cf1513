package main

import (
	"net/http"
	"strings"

	"github.com/freeslot/freeslot/internal/finding"
)

type statusCmd struct{}

// Help is shown below the flags.
func (statusCmd) Help() string {
	return `What the replica that answers finds wrong now, the worst first, each with the next step.

Exit codes: 0 all is well; 1 there are warnings, or a part could not say; 2 something is critical, or no replica answers.`
}

// Run shows what is wrong. What it finds decides about the exit code.
func (statusCmd) Run(a *app) error {
	var report finding.Report
	if err := a.call(http.MethodGet, "/v1/findings", nil, nil, &report); err != nil {
		return exitError{exitTrouble, err}
	}
	if err := printFindings(a, &report); err != nil {
		return err
	}
	if code, why := report.Verdict(); code != exitOK {
		return exitError{code, why}
	}
	return nil
}

func printFindings(a *app, report *finding.Report) error {
	if a.json {
		return a.printJSON(report)
	}
	for _, f := range report.Findings {
		_ = a.println("%s, for %s: %s", strings.ToUpper(string(f.Severity)), ago(f.SinceMS), clean(f.Text))
		if len(f.Names) > 0 {
			_ = a.println("  %s", clean(strings.Join(f.Names, ", ")))
		}
		_ = a.println("  next: %s", f.Next)
	}
	if len(report.Unknown) > 0 {
		a.warn("could not say in time whether all is well: %s", strings.Join(report.Unknown, ", "))
	}
	if len(report.Findings)+len(report.Unknown) == 0 {
		return a.println("all is well, as of %s", clock(report.AtMS))
	}
	return nil
}
