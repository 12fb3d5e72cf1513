package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	lists "github.com/freeslot/freeslot/namelist"
)

const (
	// maxSubjects is the largest number of subjects in a request.
	maxSubjects = 1000
	// evaluateAtOnce is how many subjects of a request are evaluated at the same time: what is not
	// in memory waits for Redis.
	evaluateAtOnce = 32
	// maxExamples is how many subjects a comparison shows.
	maxExamples = 10
)

// EvaluateRequest asks what a chain decides for subjects.
type EvaluateRequest struct {
	Subjects []ChainSubject `json:"subjects" doc:"1 to 1000."`
}

// ChainSubject is who or what a chain decides for.
type ChainSubject struct {
	// The tags document Key and Attributes for readers of the API.
	Key        string                     `json:"key" doc:"Identifies the subject; rules know it as the attribute key."`
	Attributes map[string]json.RawMessage `json:"attributes,omitempty" doc:"Texts, numbers and booleans by the names of attributes. What is missing, null or of another type makes rules unknown."`
}

// EvaluateAnswer holds decisions.
type EvaluateAnswer struct {
	Decisions []ChainDecision `json:"decisions" doc:"In the order of the subjects."`
}

// ChainDecision is what a chain decides.
type ChainDecision struct {
	// The tags document Outcome and the rest for readers of the API.
	Outcome string          `json:"outcome" doc:"allow, deny, variant or unknown."`
	Variant string          `json:"variant,omitempty"`
	Value   json.RawMessage `json:"value,omitempty" doc:"The value of the variant, if it has one."`
	Rule    string          `json:"rule,omitempty" doc:"The rule that decided; absent for the default."`
	Reason  string          `json:"reason"`
	Doubt   string          `json:"doubt,omitempty" doc:"The first condition on the way that was unknown, and why."`
	Version int64           `json:"version" doc:"Of the chain."`
	Lists   []ChainAsked    `json:"lists" doc:"Version and revision of every list that was asked."`
}

// ChainAsked is the state of a list that was asked; 0 if the list did not know.
type ChainAsked struct {
	List     string `json:"list"`
	Version  int64  `json:"version"`
	Revision int64  `json:"revision"`
}

// CompareRequest asks how decisions change with another document.
type CompareRequest struct {
	Document json.RawMessage `json:"document" doc:"The document; it need not be a version of the chain."`
	Subjects []ChainSubject  `json:"subjects" doc:"1 to 1000."`
}

// CompareAnswer says how decisions change.
type CompareAnswer struct {
	// The tags document Version and the rest for readers of the API.
	Version  int64          `json:"version" doc:"The version that serves, which was compared with; 0: there is no chain, so all were unknown."`
	Subjects int            `json:"subjects"`
	Changed  int            `json:"changed" doc:"How many subjects get another outcome or variant."`
	Unknown  int            `json:"unknown" doc:"How many are unknown with the document, changed or not: a sample without the attributes that rules need says little."`
	Changes  []ChainMoved   `json:"changes" doc:"How many get which; the most first."`
	Examples []ChainExample `json:"examples" doc:"Up to 10 subjects that get another outcome."`
}

// ChainMoved counts the subjects whose outcome changes in one way.
type ChainMoved struct {
	Before   string `json:"before" doc:"allow, deny, unknown, or variant: and its name."`
	After    string `json:"after"`
	Subjects int    `json:"subjects"`
}

// ChainExample is a subject whose outcome changes.
type ChainExample struct {
	Key    string `json:"key"`
	Before string `json:"before" doc:"The outcome, and what decided it."`
	After  string `json:"after"`
}

// subjects checks subjects, and decodes their attributes.
func subjects(in []ChainSubject) ([]chain.Subject, error) {
	if len(in) == 0 || len(in) > maxSubjects {
		return nil, freeslot.Invalid("subjects", "are %d, expected 1 to %d", len(in), maxSubjects)
	}
	var found freeslot.FieldErrors
	out := make([]chain.Subject, len(in))
	for i, s := range in {
		out[i] = chain.Subject{Key: s.Key, Attributes: make(map[string]any, len(s.Attributes))}
		for name, text := range s.Attributes {
			v, err := attribute(text)
			if err != nil {
				found.Addf(
					fmt.Sprintf("subjects[%d].attributes.%.64s", i, name), "is %.64s, expected a text, a number or a boolean", text,
				)
			}
			out[i].Attributes[name] = v
		}
	}
	return out, found.Err()
}

// declared refuses attributes that no document declares: such a subject is a mistake, which would
// otherwise pass as a missing attribute. The documents are valid, or empty.
func declared(of []chain.Subject, documents ...string) error {
	if !slices.ContainsFunc(of, func(s chain.Subject) bool { return len(s.Attributes) > 0 }) {
		return nil
	}
	known := make(map[string]json.RawMessage)
	for _, text := range documents {
		d := struct {
			Attributes *map[string]json.RawMessage `json:"attributes"`
		}{&known}
		_ = json.Unmarshal([]byte(text), &d) // it is valid, or empty
	}
	expected := "none: the chain declares no attributes"
	if len(known) > 0 {
		expected = strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	}
	var found freeslot.FieldErrors
	for i, s := range of {
		for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
			if _, is := known[name]; is {
				continue
			}
			field := fmt.Sprintf("subjects[%d].attributes.%.64s", i, name)
			if found.Addf(field, "is not declared by the chain, expected %s", expected); len(found) == maxExamples {
				return found.Err()
			}
		}
	}
	return found.Err()
}

// attribute decodes a value: whole numbers stay exact.
func attribute(text json.RawMessage) (v any, err error) {
	var whole int
	if json.Unmarshal(text, &whole) == nil && string(text) != "null" {
		return whole, nil
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	switch v.(type) {
	case nil, string, float64, bool:
		return v, nil
	default:
		return nil, fmt.Errorf("a %T", v)
	}
}

// asker answers a chain's questions from the lists of this replica.
type asker []*lists.List

func askerOf(c *lists.Client, names []string) asker {
	out := make(asker, len(names))
	for i, name := range names {
		out[i] = c.List(name)
	}
	return out
}

// Ask asks a list, and Redis for what memory cannot decide.
func (a asker) Ask(ctx context.Context, list int, id string) chain.Membership {
	got := a[list].Check(ctx, id)
	m := chain.Membership{Version: got.Version, Revision: got.Revision}
	switch got.Verdict {
	case lists.Yes:
		m.Truth = chain.True
	case lists.No:
		m.Truth = chain.False
	default:
		m.Why = got.Reason.String()
	}
	return m
}

// decide evaluates a chain for subjects, some at the same time.
func decide(
	ctx context.Context, client *lists.Client, c *chain.Chain, of []chain.Subject,
) ([]chain.Decision, error) {
	env := chain.Env{Lists: askerOf(client, c.Lists())}
	out := make([]chain.Decision, len(of))
	atOnce(len(of), func(i int) { out[i] = c.Evaluate(ctx, env, of[i]) })
	return out, ctx.Err()
}

const (
	// maxEvaluations bounds the requests that are evaluated at a time: the client of lists has calls
	// under way for as many subjects. tenantEvaluations is the share of one tenant.
	maxEvaluations    = 24
	tenantEvaluations = 6
)

// evaluations counts the requests that are evaluated. The zero value is ready to use.
type evaluations struct {
	mu  sync.Mutex
	all int            // guarded by mu
	by  map[string]int // guarded by mu; by tenant
}

// enter takes a place for a request, which leave gives back. Without one it returns overloaded:
// answers for lack of calls would be unknown.
func (e *evaluations) enter(tenant string) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all >= maxEvaluations || e.by[tenant] >= tenantEvaluations {
		return nil, &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: 100 * time.Millisecond,
			Message: fmt.Sprintf("%d evaluations are under way, %d of them for tenant %s", e.all, e.by[tenant], tenant),
		}
	}
	if e.by == nil {
		e.by = make(map[string]int)
	}
	e.all++
	e.by[tenant]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all--
		if e.by[tenant]--; e.by[tenant] == 0 {
			delete(e.by, tenant)
		}
	}, nil
}

// atOnce calls do with 0 to n-1, with some at the same time.
func atOnce(n int, do func(i int)) {
	var workers sync.WaitGroup
	step := max(1, (n+evaluateAtOnce-1)/evaluateAtOnce)
	for from := 0; from < n; from += step {
		workers.Go(func() {
			for i := from; i < min(from+step, n); i++ {
				do(i)
			}
		})
	}
	workers.Wait()
}

func shownDecision(d *lists.Decision) ChainDecision {
	out := ChainDecision{
		Outcome: d.Outcome.String(), Variant: d.Variant, Value: d.Value, Rule: d.Rule, Reason: d.Reason.String(),
		Version: d.Version, Lists: []ChainAsked{},
	}
	for _, v := range d.Versions() {
		out.Lists = append(out.Lists, ChainAsked(v))
	}
	if w := d.Doubt; w.Rule != "" {
		out.Doubt = fmt.Sprintf("rule %s: %s", w.Rule, w.Why)
		if what := w.List + w.Attribute; what != "" {
			out.Doubt = fmt.Sprintf("rule %s, %s: %s", w.Rule, what, w.Why)
		}
	}
	return out
}

func (r *routes) evaluateChain(ctx context.Context, in *chainBodyInput) (*output[EvaluateAnswer], error) {
	return handle(ctx, r, "evaluate the chain", in,
		func(ctx context.Context, in *chainBodyInput) (out EvaluateAnswer, err error) {
			var q EvaluateRequest
			if err := freeslot.DecodeStrict("evaluation", in.RawBody, &q); err != nil {
				return out, err
			}
			of, err := subjects(q.Subjects)
			if err != nil {
				return out, err
			}
			leave, err := r.evaluations.enter(api.Caller(ctx).Tenant)
			if err != nil {
				return out, err
			}
			defer leave()
			serving, err := r.control.Chain(ctx, in.Chain)
			if err != nil { // a name that is made up must cost no memory
				return out, err
			}
			if err := declared(of, serving.Document); err != nil {
				return out, err
			}
			client, err := r.own.Client()
			if err != nil {
				return out, err
			}
			out.Decisions = make([]ChainDecision, len(of))
			c := client.Chain(in.Chain)
			atOnce(len(of), func(i int) {
				d := c.Evaluate(ctx, lists.Subject(of[i]))
				out.Decisions[i] = shownDecision(&d)
			})
			return out, ctx.Err()
		})
}

// compiled returns the version of a chain that serves.
func compiled(serving *namelist.ChainRecord) (*chain.Chain, error) {
	c, err := chain.Compile([]byte(serving.Document), serving.Version)
	if err != nil {
		return nil, fmt.Errorf("version %d of chain %s: %w", serving.Version, serving.Name, err)
	}
	return c, nil
}

func (r *routes) compareChain(ctx context.Context, in *chainBodyInput) (*output[CompareAnswer], error) {
	return handle(ctx, r, "compare the chain", in,
		func(ctx context.Context, in *chainBodyInput) (CompareAnswer, error) {
			return r.compared(ctx, api.Caller(ctx).Tenant, in)
		})
}

// compared takes a place like an evaluation: a comparison makes as many calls, or more.
func (r *routes) compared(ctx context.Context, tenant string, in *chainBodyInput) (out CompareAnswer, err error) {
	var q CompareRequest
	if err := freeslot.DecodeStrict("comparison", in.RawBody, &q); err != nil {
		return out, err
	}
	of, err := subjects(q.Subjects)
	if err != nil {
		return out, err
	}
	if err := namelist.ValidateName("chain", in.Chain); err != nil {
		return out, err
	}
	leave, err := r.evaluations.enter(tenant)
	if err != nil {
		return out, err
	}
	defer leave()
	_, next, err := r.validChain(ctx, in.Chain, q.Document)
	if err != nil {
		return out, err
	}
	serving, err := r.before(ctx, in.Chain)
	if err != nil {
		return out, err
	}
	if err := declared(of, string(q.Document), serving.Document); err != nil {
		return out, err
	}
	out.Version = serving.Version
	before, after, err := r.both(ctx, &serving, next, of)
	if err == nil {
		out.compare(of, before, after)
	}
	return out, err
}

// both decides by the version that serves and by another document. It lets their lists go again: a
// document that anyone may invent must not make the replica follow lists for ever.
func (r *routes) both(ctx context.Context, serving *namelist.ChainRecord, next *chain.Chain, of []chain.Subject) (
	before, after []chain.Decision, err error,
) {
	asked := next.Lists()
	var now *chain.Chain
	if serving.Version > 0 {
		if now, err = compiled(serving); err != nil {
			return nil, nil, err
		}
		asked = slices.Concat(asked, now.Lists())
	}
	client, release, err := r.own.Borrow(asked)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	awaitNew(ctx, client, asked)
	before = make([]chain.Decision, len(of)) // without a chain, all is unknown
	if now != nil {
		if before, err = decide(ctx, client, now, of); err != nil {
			return nil, nil, err
		}
	}
	after, err = decide(ctx, client, next, of)
	return before, after, err
}

// newPatience bounds how long a comparison waits for lists that were not followed before.
const newPatience = time.Second

// awaitNew waits for lists that the client begins to follow. Without them subjects are unknown.
func awaitNew(ctx context.Context, client *lists.Client, names []string) {
	ctx, cancel := context.WithTimeout(ctx, newPatience)
	defer cancel()
	for _, name := range names {
		if l := client.List(name); l.Status().Reason == lists.ReasonNotLoaded {
			_ = l.WaitReady(ctx) // a list that never is ready says by itself why it is unknown
		}
	}
}

// compare counts what differs.
func (a *CompareAnswer) compare(of []chain.Subject, before, after []chain.Decision) {
	a.Subjects, a.Changes, a.Examples = len(of), []ChainMoved{}, []ChainExample{}
	counts := make(map[[2]string]int)
	for i := range after {
		was, is := outcomeOf(&before[i]), outcomeOf(&after[i])
		if is == chain.Undecided.String() {
			a.Unknown++
		}
		if was == is {
			continue
		}
		a.Changed++
		counts[[2]string{was, is}]++
		if len(a.Examples) < maxExamples {
			a.Examples = append(a.Examples, ChainExample{of[i].Key, was + why(&before[i]), is + why(&after[i])})
		}
	}
	for way, n := range counts {
		a.Changes = append(a.Changes, ChainMoved{way[0], way[1], n})
	}
	slices.SortFunc(a.Changes, func(x, y ChainMoved) int {
		if x.Subjects != y.Subjects {
			return y.Subjects - x.Subjects
		}
		return strings.Compare(x.Before+" "+x.After, y.Before+" "+y.After)
	})
}

// why returns what decided.
func why(d *chain.Decision) string {
	if d.Rule != "" {
		return fmt.Sprintf(" (%s %s)", d.Reason, d.Rule)
	}
	return fmt.Sprintf(" (%s)", d.Reason)
}

func outcomeOf(d *chain.Decision) string {
	if d.Result == chain.Varied {
		return string(chain.VariantOf(d.Variant))
	}
	return d.Result.String()
}
