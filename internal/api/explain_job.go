package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/process/tracing"
)

// JobExplanation tells why a job waits, or why it ended as it did.
type JobExplanation struct {
	// Job and the rest are documented in their tags.
	Job       freeslot.JobStatus `json:"job" doc:"The job as it is now."`
	Why       []string           `json:"why" doc:"Why the job is in its state, in words for people, the nearest cause first."`
	TraceID   string             `json:"trace_id,omitempty" doc:"The id of the trace that the job belongs to, if it has one."`
	Placement *Explanation       `json:"placement,omitempty" doc:"For a job that waits: where it could go now, as this replica knows the nodes."`
}

type (
	explainJobInput struct {
		ID    string `path:"id" doc:"The job's id."`
		Limit int    `query:"limit" minimum:"0" maximum:"1000" default:"100" doc:"At most this many nodes are listed."`
	}
	explainJobOutput struct{ Body JobExplanation }
)

func (s *Server) registerExplainJob(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "explain-submitted-job", Method: http.MethodGet, Path: "/v1/jobs/{id}/explain", Tags: []string{"jobs"},
		Summary: "Explain why a job waits, or why it ended as it did",
	}, handleBounded(s, "explain job", s.explainJob))
}

func (s *Server) explainJob(ctx context.Context, in *explainJobInput) (*explainJobOutput, error) {
	if err := cell.ValidateJobID("id", in.ID); err != nil {
		return nil, err
	}
	status, err := s.deps.Jobs.Job(ctx, Caller(ctx).scope(), in.ID)
	if err != nil {
		return nil, err
	}
	job, _, err := s.deps.Specs.Spec(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := JobExplanation{Job: *s.shown(ctx, &status), TraceID: tracing.TraceID(job.TraceParent)}
	switch status.State {
	case freeslot.StateScheduled, freeslot.StateWaiting, freeslot.StateMoving, freeslot.StateRetryWait:
		placement := s.placement(ctx, job, in.Limit)
		out.Placement = &placement
		out.Why = slices.Concat(placement.forNode(), whyItWaits(&status, job), placement.forWaiting())
		if status.DeadlineMS > 0 {
			out.Why = append(out.Why, "it expires at "+instant(status.DeadlineMS))
		}
	default:
		out.Why = []string{whyItEnded(&status, job)}
	}
	if a := job.Admission; a != nil {
		out.Why = append(out.Why, whatAdmitted(a))
	}
	return &explainJobOutput{Body: out}, nil
}

// whatAdmitted tells what a chain decided about the job.
func whatAdmitted(a *freeslot.Admission) string {
	text := fmt.Sprintf("chain %s, version %d, decided %s", a.Chain, a.Version, a.Outcome)
	if a.Variant != "" {
		text += " " + a.Variant
	}
	text += " " + a.Reason
	switch {
	case a.Observed:
		text += "; it only observes"
	case a.Pool != "":
		text += "; that set its pool to " + a.Pool
	case a.PreferredPool != "":
		text += "; that set its preferred pool to " + a.PreferredPool
	}
	return text
}

// whyItWaits returns the reasons in the job's own record.
func whyItWaits(s *freeslot.JobStatus, job *freeslot.Job) (why []string) {
	add := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	if s.NodeByMS > 0 {
		add("it expires as no_matching_node at %s if no node fits then", instant(s.NodeByMS))
	}
	switch {
	case s.State == freeslot.StateScheduled:
		add("it is scheduled for %s, and waits for a slot from then on", instant(s.RunAtMS))
	case s.State == freeslot.StateMoving:
		add("its cell has lost the nodes that fit, and it is on its way to another cell")
	case s.State == freeslot.StateRetryWait:
		add("attempt %d on node %s failed, and the next one is due at %s", s.Attempt, s.Node, instant(s.RunAtMS))
	case s.HeldBy == freeslot.HeldByTenant:
		add("tenant %s runs as many jobs as its max_running allows", s.Tenant)
	case s.HeldBy == freeslot.HeldByKey:
		add("as many jobs with its concurrency_key run as concurrency_limit (%d) allows", max(job.ConcurrencyLimit, 1))
	case s.HeldBy == freeslot.HeldByPause:
		add("its service, its class or its pool is paused")
	case s.Position > 0:
		add("it has place %d in the queue of its class, in its cell", s.Position)
	}
	if s.Failures > 0 {
		add("%s; a node gets no job for two seconds that has just failed on it", failures(s, job))
	}
	return why
}

// forNode returns which node the job waits for, if none fits.
func (e *Explanation) forNode() []string {
	if len(e.Expected) == 0 {
		return nil
	}
	return []string{"it waits for " + NodeToStart(e.Expected)}
}

// NodeToStart says in words for which node a job waits that fits none which runs.
func NodeToStart(pools []string) string {
	return "a node of pool " + strings.Join(pools, " or ") + " to start"
}

// forWaiting returns the reasons that lie with the nodes.
func (e *Explanation) forWaiting() (why []string) {
	if e.PausedBy != "" {
		why = append(why, e.PausedBy+" is paused")
	}
	if e.Waiting != nil && *e.Waiting > 0 {
		why = append(why, plural.Of(*e.Waiting, "job of its class waits", "jobs of its class wait")+" in all")
	}
	against := make([]string, 0, len(e.Breakdown))
	for _, reason := range slices.Sorted(maps.Keys(e.Breakdown)) {
		against = append(against, fmt.Sprintf("%s %d", reason, e.Breakdown[reason]))
	}
	text := fmt.Sprintf("%s, and %d of them could take it now", HowManyFit(e.Fits, e.Total), e.Qualify)
	if len(against) > 0 {
		text += "; against the others: " + strings.Join(against, ", ")
	}
	return append(why, text)
}

// HowManyFit says in words how many of all nodes fit.
func HowManyFit(fits, total int) string {
	verb := "fit"
	if fits == 1 {
		verb = "fits"
	}
	return fmt.Sprintf("%d of %s %s", fits, plural.Of(total, "node", "nodes"), verb)
}

// whyItEnded tells why a job ended. It also serves a running job.
func whyItEnded(s *freeslot.JobStatus, job *freeslot.Job) string {
	attempt := fmt.Sprintf("attempt %d on node %s", s.Attempt, s.Node)
	switch s.State {
	case freeslot.StateRunning:
		return attempt + " runs since " + instant(s.AssignedAtMS)
	case freeslot.StateCancelling:
		return attempt + " is asked to stop, because the job was cancelled or its deadline has passed"
	case freeslot.StateSucceeded:
		return fmt.Sprintf("%s succeeded after %s", attempt, span(s.AssignedAtMS, s.FinishedAtMS))
	case freeslot.StateFailed:
		return attempt + " ended with an error that no retry can mend: " + jobError(s)
	case freeslot.StateDead:
		return failures(s, job)
	case freeslot.StateExpired:
		return whyItExpired(s, job)
	default:
		if s.Attempt == 0 {
			return "it was cancelled before its first attempt"
		}
		return "it was cancelled; the last attempt was " + attempt
	}
}

func whyItExpired(s *freeslot.JobStatus, job *freeslot.Job) string {
	if s.Error != nil && s.Error.Code == freeslot.JobErrorNoMatchingNode {
		return fmt.Sprintf("%s, %s after its submission", s.Error, span(s.SubmittedAtMS, s.FinishedAtMS))
	}
	text := fmt.Sprintf(
		"its deadline was %s, %s after its submission", instant(s.DeadlineMS), span(s.SubmittedAtMS, s.DeadlineMS),
	)
	if s.FinishedAtMS < s.DeadlineMS {
		text += ", too early for another attempt"
	}
	switch {
	case s.Attempt == 0:
		text += "; no attempt had begun"
	case s.Failures > 0:
		text += "; " + failures(s, job)
	}
	return text
}

func failures(s *freeslot.JobStatus, job *freeslot.Job) string {
	return fmt.Sprintf(
		"%d of at most %d attempts failed, the last one with %s", s.Failures,
		cmp.Or(job.MaxAttempts, freeslot.DefaultMaxAttempts), jobError(s),
	)
}

func jobError(s *freeslot.JobStatus) string {
	if s.Error == nil {
		return "an error that is not known"
	}
	return s.Error.Error()
}

func instant(ms int64) string {
	if ms == 0 {
		return "any moment"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func span(fromMS, toMS int64) time.Duration {
	return time.Duration(toMS-fromMS) * time.Millisecond
}
