package cell

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// progress says what each report does; of a stale attempt nothing changes.
func (m *model) progress(node string, epoch Epoch, reports []ProgressReport) []ProgressOutcome {
	out := make([]ProgressOutcome, len(reports))
	for i, r := range reports {
		j := m.jobs[r.Attempt.Job]
		if j == nil || !j.runs() || j.node != node || j.epoch != epoch || j.Attempt != r.Attempt.N {
			continue
		}
		out[i] = ProgressTaken
		if j.State == freeslot.StateCancelling {
			out[i] = ProgressCancel
		}
		told := &freeslot.Progress{Attempt: r.Attempt.N, Seq: r.Seq, Value: r.Value}
		if j.Progress == nil || told.After(j.Progress) {
			j.Progress = told
			m.tell(j, toldLine(told))
		}
	}
	return out
}

func toldLine(p *freeslot.Progress) string {
	return fmt.Sprintf("told %d %d %s", p.Attempt, p.Seq, p.Value)
}

func (h *history) progress(rt *rapid.T) {
	node, epoch := drawNode(rt), drawEpoch(rt)
	reports := make([]ProgressReport, 0, 3)
	seen := map[string]bool{}
	for range rapid.IntRange(1, 3).Draw(rt, "reports") {
		a := h.drawAttempt(rt)
		if a.N = max(a.N, 1); seen[a.Job] {
			continue
		}
		seen[a.Job] = true
		if j := h.model.jobs[a.Job]; j != nil && j.node != "" && rapid.IntRange(0, 3).Draw(rt, "by the owner") > 0 {
			node, epoch = j.node, j.epoch
		}
		reports = append(reports, ProgressReport{
			Attempt: a, Seq: rapid.Int64Range(1, 12).Draw(rt, "number"),
			Value: json.RawMessage(strconv.Itoa(rapid.IntRange(0, 9).Draw(rt, "value"))),
		})
	}
	want := h.model.progress(node, epoch, reports)
	got, err := h.r.Progress(h.r.ctx(), node, epoch, reports)
	check(rt, "progress", want, got, nil, err)
}

// soundProgress: what is known as told last can be read, and no attempt told it that has
// not begun.
func (r *rig) soundProgress(jobs []string) {
	r.t.Helper()
	for _, job := range jobs {
		record := r.hash(r.l.Job(job))
		if record["progress"] == "" {
			continue
		}
		run, _, _ := strings.Cut(record["run"], " ")
		attempt, _ := strconv.Atoi(run)
		if p, err := decodeProgress(record["progress"]); err != nil || p.Attempt > attempt || p.Attempt < 1 || p.Seq < 1 {
			r.t.Errorf("job %s of attempt %d has the progress %q: %v", job, attempt, record["progress"], err)
		}
	}
}
