package cell

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/redistest"
	"github.com/freeslot/freeslot/internal/script"
)

// texts are the sources of the scripts by name, without what they include.
func texts(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := sources.ReadDir(path.Join("script", folder))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".lua"); ok {
			text, err := sources.ReadFile(path.Join("script", folder, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(text)
		}
	}
	return out
}

// header is the comment that a script begins with, as one line.
func header(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "--")
		if !ok {
			break
		}
		lines = append(lines, strings.TrimSpace(comment))
	}
	return strings.Join(lines, "\n")
}

func TestScriptHeaders(t *testing.T) {
	t.Parallel()
	all := texts(t, "")
	if len(all) < 8 {
		t.Errorf("%d scripts", len(all))
	}
	for name, text := range all {
		h := header(text)
		for _, part := range []string{
			`^` + name + `: [a-z]`, `\n\nGuarantee: `, `\nKEYS\[1\] `, `\nReturns `, `\nRedis 7\.0\. Cost: O\(`,
		} {
			if !regexp.MustCompile(part).MatchString(h) {
				t.Errorf("the header of %s.lua has no %q", name, part)
			}
		}
		for _, table := range []string{"KEYS", "ARGV"} {
			documented := indexes(h, table+`\[(\d+)`) // "KEYS[6..]" too
			for i := range indexes(body(text), table+`\[(\d+)\]`) {
				if !documented[i] {
					t.Errorf("%s.lua uses %s[%d], which its header does not explain", name, table, i)
				}
			}
		}
	}
	for name, text := range texts(t, "lib") {
		if !strings.HasPrefix(text, "-- ") || !regexp.MustCompile(`(?m)^local `).MatchString(text) {
			t.Errorf("lib/%s.lua does not say what it is, or defines nothing", name)
		}
		included := false
		for _, script := range all {
			included = included || strings.Contains(script, "-- include lib/"+name+".lua\n")
		}
		if !included {
			t.Errorf("nothing includes lib/%s.lua", name)
		}
	}
}

func body(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "--")
		b.WriteString(code)
		b.WriteByte('\n')
	}
	return b.String()
}

// indexes are the numbers that pattern finds in text.
func indexes(text, pattern string) map[int]bool {
	out := make(map[int]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		out[n] = true
	}
	return out
}

// TestScriptsDefineBeforeUse: scripts are put together by inclusion, and Lua takes a
// name that is not bound yet for a global that is nil.
func TestScriptsDefineBeforeUse(t *testing.T) {
	t.Parallel()
	names := map[string]string{} // function -> the part that defines it
	for part, text := range texts(t, "lib") {
		for _, m := range regexp.MustCompile(`(?m)^local function (\w+)`).FindAllStringSubmatch(text, -1) {
			names[m[1]] = part
		}
	}
	for name := range texts(t, "") {
		full := body(scripts[name].Text(false))
		for function := range names {
			use := regexp.MustCompile(`\b` + function + `\(`).FindStringIndex(strings.ReplaceAll(full, "local function "+function+"(", strings.Repeat(" ", len("local function "+function+"("))))
			define := strings.Index(full, "local function "+function+"(")
			if use != nil && (define < 0 || use[0] < define) {
				t.Errorf("%s.lua calls %s before it is defined", name, function)
			}
		}
	}
}

// TestScriptsUseWhatIsPassed runs every operation with KEYS and ARGV that report an
// index beyond the end: a caller that passes too few would else go unnoticed, as
// Lua reads nil there. Scripts that walk to #KEYS stay within by themselves.
func TestScriptsUseWhatIsPassed(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		r.Cell.scripts = make(script.Set)
		for name, s := range scripts {
			r.Cell.scripts[name] = script.New(name, guard+s.Text(false))
		}
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(richNode("n1"))
		r.register(testNode("n2", 1))
		// Several items, nodes and pools, so that the computed indexes are covered.
		a, b := submission("r1", "n1", "n2", "n3"), submission("", "n2")
		for _, res := range r.SubmitAll(r.ctx(), []Submission{a, b, a, submission("", "n3", "n2")}) {
			if res.Err != nil {
				t.Error(res.Err)
			}
		}
		if _, err := r.Register(r.ctx(), testNode("n1", 3), epoch); err != nil {
			t.Error(err)
		}
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Read: "0-1", Running: []Attempt{{a.JobID, 1}, {b.JobID, 1}}}); err != nil {
			t.Error(err)
		}
		if _, err := r.Attach(r.ctx(), "", a.JobID, "r2"); err != nil {
			t.Error(err)
		}
		r.cfg.RetentionBytes = 1
		r.retain(r.Cell, 3)
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken, ProgressStale}, told(a.JobID, 1, 1, "1"), told(b.JobID, 1, 1, "1"))
		if _, err := r.Cancel(r.ctx(), "", a.JobID); err != nil {
			t.Error(err)
		}
		if _, err := r.Cell.complete(r.ctx(), []Completion{succeed("n1", epoch, a.JobID), succeed("n1", epoch, b.JobID)}); err != nil {
			t.Error(err)
		}
		if _, err := r.Changes(r.ctx(), 0, 10); err != nil {
			t.Error(err)
		}
		if nodes, err := r.Nodes(r.ctx(), []string{"n1", "n2", "n3"}); err != nil || len(nodes.Nodes) != 3 {
			t.Error(nodes, err)
		}
		if id, err := r.History(r.ctx()); err != nil || id == "" {
			t.Error(id, err)
		}
		if _, err := r.TakePermits(r.ctx(), "acme", Rate{PerSecond: 1, Burst: 1}, 1); err != nil {
			t.Error(err)
		}
		if _, err := r.MemoryUse(r.ctx()); err != nil {
			t.Error(err)
		}
		r.schedules("acme/a")
		if err := r.CheckRecord(r.ctx()); err != nil {
			t.Error(err)
		}
		if all, err := r.Present(r.ctx(), "r1", time.Minute); err != nil || len(all) != 1 {
			t.Error(all, err)
		}
		r.apply(change(0, "a"))
		r.apply(change(1, "b"))
		if out, err := r.PauseConfig(r.ctx(), PauseChange{Seen: 2, Paused: []byte(`{"pools":["a"]}`)}); err != nil || out.Version != 3 {
			t.Error(out, err)
		}
		r.apply(change(3, "a"))
		if state := r.readConfig(); state.Version != 4 || string(state.Paused) != `{"pools":["a"]}` {
			t.Errorf("%+v", state)
		}
		if err := r.Follow(r.ctx(), "r1", 4, "g"); err != nil {
			t.Error(err)
		}
		if status, err := r.Drop(r.ctx(), "", a.JobID); err != nil || status.ID != a.JobID {
			t.Error(status, err)
		}
		w := submission("r1", "n1", "n2")
		w.Job.Slots, w.Job.TimeoutMS = 9, 1
		for _, res := range r.EnqueueAll(r.ctx(), []Submission{w, submission("r1"), submission("r1", "n1")}) {
			if res.Err != nil {
				t.Error(res.Err)
			}
		}
		if _, err := r.Take(r.ctx(), "n1", []string{echo}, 2); err != nil {
			t.Error(err)
		}
		if err := r.ConfigSeen(r.ctx(), 2); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Drain(r.ctx(), "n2"), r.Undrain(r.ctx(), "n2")); err != nil {
			t.Error(err)
		}
		held, _ := r.slots("n1")
		for job := range held {
			comp := r.fails("n1", epoch, job, Retry)
			comp.RetryDelay = time.Millisecond
			if _, err := r.Cell.complete(r.ctx(), []Completion{comp}); err != nil {
				t.Error(err)
			}
		}
		r.pass(w.JobID)
		if _, err := r.CheckGates(r.ctx(), 10); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Due(r.ctx(), 10); err != nil {
			t.Error(err)
		}
		if reaped, err := r.Reap(r.ctx(), "n2", "none"); err != nil || reaped.Gone {
			t.Error(reaped, err)
		}
		r.strictMoves()
		r.cancelWaiting()
		c := r.place("r1", 1, "n1")
		if lost, err := r.Deregister(r.ctx(), "n1", epoch); err != nil || !slices.Equal(lost, []string{c}) {
			t.Error(lost, err)
		}
		r.sound()
		// The guard itself works.
		cmd := r.raw.B().Eval().Script(guard + "return KEYS[2]").Numkeys(1).Key(r.l.Version()).Build()
		if err := r.raw.Do(r.ctx(), cmd).Error(); err == nil || !strings.Contains(err.Error(), "KEYS[2] of 1") {
			t.Errorf("reading beyond the end: %v", err)
		}
	})
}

// guard makes reading beyond KEYS and ARGV an error.
var guard = func() string {
	line := `local %[1]s = setmetatable({unpack(%[1]s)}, {__index = function(t, i) error('%[1]s[' .. tostring(i) .. '] of ' .. #t) end})` + "\n"
	return fmt.Sprintf(line, "KEYS") + fmt.Sprintf(line, "ARGV")
}()
