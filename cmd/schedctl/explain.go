package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

// maxDetail is the longest reason in a table.
const maxDetail = 100

type explainCmd struct {
	Service string `arg:"" optional:"" help:"Service of the job."`
	Job     string `placeholder:"JOB-ID" help:"Why this submitted job waits, or why it ended as it did; without a service and a requirement."`
	requirementFlags
	Limit int `default:"20" placeholder:"N" help:"At most this many nodes (default ${default})."`
}

// Help is shown below the flags.
func (explainCmd) Help() string {
	return `Nothing is submitted. Examples:
  schedctl explain --job 0-01JD5Y8G6W9V0M5T2C3Q4R7X8Z
  schedctl explain tts --target de --slots 2
  schedctl explain asr --also-service "asr@^1.4" --label gpu=a100 --label-rule "vram ge 40"
  schedctl explain tts --prefer-pool eu -o json`
}

// explanation is the answer of the API.
type explanation struct{ api.Explanation }

// Run asks one replica where a job could go.
func (c *explainCmd) Run(a *app) error {
	if c.Job != "" {
		if c.Service != "" || !reflect.ValueOf(c.requirementFlags).IsZero() {
			return usage("--job takes no service and no requirement: the job has its own")
		}
		return c.explainJob(a)
	}
	job := c.job(c.Service)
	if err := job.Validate("job"); err != nil {
		return usageError{explain(err)}
	}
	var answer json.RawMessage
	if err := a.call(http.MethodPost, "/v1/explain", nil, api.ExplainRequest{
		Service: job.Service, Requirement: job.Requirement, Slots: job.Slots, AffinityKey: job.AffinityKey, Limit: &c.Limit,
	}, &answer); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	var e explanation
	if err := json.Unmarshal(answer, &e.Explanation); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if e.Degraded {
		a.warn("degraded: Redis does not answer; nodes are as the replica knew them up to %s ago", age(e.AgeMS))
	}
	return a.printExplanation(&e)
}

// explainJob asks why a submitted job is in its state.
func (c *explainCmd) explainJob(a *app) error {
	var answer json.RawMessage
	query := url.Values{"limit": {fmt.Sprint(c.Limit)}}
	if err := a.call(http.MethodGet, "/v1/jobs/"+url.PathEscape(c.Job)+"/explain", query, nil, &answer); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	var e api.JobExplanation
	if err := json.Unmarshal(answer, &e); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	_ = a.println("job %s of service %s is %s:", e.Job.ID, e.Job.Service, e.Job.State)
	for _, why := range e.Why {
		_ = a.println("  %s", why)
	}
	if e.Placement == nil {
		return nil
	}
	if e.Placement.Degraded {
		a.warn("degraded: Redis does not answer; nodes are as the replica knew them up to %s ago", age(e.Placement.AgeMS))
	}
	return a.printExplained(&explanation{*e.Placement})
}

func (a *app) printExplanation(e *explanation) error {
	verdict := fmt.Sprintf("%s, %d of them could take the job now.", api.HowManyFit(e.Fits, e.Total), e.Qualify)
	if e.Degraded {
		verdict = api.HowManyFit(e.Fits, e.Total) + ", and what they do now is not known."
	}
	_, _ = fmt.Fprintf(a.out, "%s\nclass: %s\n", verdict, clean(e.Class))
	for i, tier := range e.Tiers {
		name := "any pool"
		if tier.Pool != "" {
			name = "pool " + tier.Pool
		}
		if tier.Preferred {
			name += " (preferred)"
		}
		_, _ = fmt.Fprintf(a.out, "tier %d: %s: %d fit, %d could take it\n", i, clean(name), tier.Fits, tier.Qualify)
	}
	if len(e.Breakdown) > 0 {
		reasons := slices.Sorted(maps.Keys(e.Breakdown))
		for i, why := range reasons {
			reasons[i] = fmt.Sprintf("%s %d", why, e.Breakdown[why])
		}
		_ = a.println("against: %s", strings.Join(reasons, ", "))
	}
	if err := a.printExplained(e); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(a.out)
	return a.println("%s", e.answer()+e.queue())
}

// queue counts the waiting jobs of the class.
func (e *explanation) queue() string {
	if e.Waiting == nil || *e.Waiting == 0 {
		return ""
	}
	return fmt.Sprintf(" Of its class, %s, %s before it.", e.ClassID, plural.Of(*e.Waiting, "job waits", "jobs wait"))
}

// answer tells how a submit would be answered.
func (e *explanation) answer() string {
	switch freeslot.Code(e.Outcome) {
	case freeslot.Code(api.OutcomeAccepted):
		return "A submit now would be placed: offered to " + strings.Join(e.Candidates, ", then ") + "."
	case freeslot.Code(api.OutcomeWaits):
		switch {
		case len(e.Expected) > 0:
			return "A submit now would wait for " + api.NodeToStart(e.Expected) + "."
		case e.PausedBy != "":
			return "A submit now would wait: " + e.PausedBy + " is paused."
		}
		return "A submit now would wait: nodes fit, and none of them can take the job at the moment."
	case freeslot.CodeNoMatchingNode:
		return "A submit now would be answered no_matching_node: no node fits, however idle." + e.hintSlots()
	case freeslot.CodeUnavailable:
		if e.Degraded {
			return "A submit now would be answered unavailable: Redis does not answer."
		}
		return "A submit now would be answered unavailable: no node fits, but nodes that are new, fell silent or were " +
			"forgotten by Redis may be there soon."
	default:
		return "A submit now would be answered " + string(e.Outcome) + "."
	}
}

// hintSlots names the largest number of slots that a job like this one can ask for.
func (e *explanation) hintSlots() string {
	if e.Breakdown["slots"] == 0 {
		return ""
	}
	return fmt.Sprintf(" With %s or less one would.", plural.Of(e.MaxSlots, "slot", "slots"))
}

func (a *app) printExplained(e *explanation) error {
	if len(e.Nodes) > 0 {
		rows := [][]string{{"NODE", "TIER", "SLOTS", "VERDICT"}}
		for _, n := range e.Nodes {
			tier, verdict := "-", "could take it"
			if n.Tier >= 0 {
				tier = fmt.Sprint(n.Tier)
			}
			if n.Reason != "" {
				verdict = string(n.Reason) + ": " + n.Detail
			}
			rows = append(
				rows, []string{n.Node, tier, fmt.Sprintf("%d/%d", n.Used+n.Pending, n.Max), shorten(verdict, maxDetail)},
			)
		}
		_, _ = fmt.Fprintln(a.out)
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	if e.Omitted > 0 {
		_, _ = fmt.Fprintf(a.out, "… and %d more; --limit shows them\n", e.Omitted)
	}
	return nil
}
