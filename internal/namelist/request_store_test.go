package namelist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// ask opens a request by ada for an edit of a list that adds these ids.
func (r *rig) ask(list string, ids ...string) ChangeRequest {
	r.t.Helper()
	mark := ok[Mark](r.t)(r.TargetMark(bounded(r.t), EditList, list))
	change := ok[[]byte](r.t)(json.Marshal(add(ids...)))
	return ok[ChangeRequest](r.t)(r.OpenRequest(bounded(r.t), ChangeRequest{
		Kind: EditList, Target: list, Tenant: "acme", Author: "ada", Note: "more", Summary: "add ids", State: RequestPending,
		Mark: mark, Change: change,
	}))
}

// decide makes the change of a request for an edit, as by approves it, in the state that by has
// seen.
func (r *rig) decide(q *ChangeRequest, by string) error {
	r.t.Helper()
	mark := ok[Mark](r.t)(r.TargetMark(bounded(r.t), q.Kind, q.Target))
	return r.decideIn(q, by, mark)
}

func (r *rig) decideIn(q *ChangeRequest, by string, mark Mark) error {
	r.t.Helper()
	ctx := ok[context.Context](r.t)(Deciding(bounded(r.t), &Decision{
		ID: q.ID, By: by, Comment: "fine", Digest: DigestOf(q.Kind, q.Target, q.Change, mark),
	}))
	var changes []Change
	if err := json.Unmarshal(q.Change, &changes); err != nil {
		r.t.Fatal(err)
	}
	_, err := r.Edit(ctx, q.Target, EditRequest{Changes: changes, By: ada})
	return err
}

func (r *rig) requestState(id string) RequestState {
	r.t.Helper()
	return ok[ChangeRequest](r.t)(r.Request(bounded(r.t), id)).State
}

// TestDecision: a request is approved in the script that makes its change, by somebody else, once,
// and only in the state of the list that it was made for.
func TestDecision(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.active("vip")
		q := r.ask("vip", "a")
		if again := r.ask("vip", "a"); again.ID != q.ID {
			t.Errorf("the same change again is request %s; want %s", again.ID, q.ID)
		}
		r.unchanged("vip", "the author's own approval", func() {
			is(t, "own", r.decide(&q, "ada"), freeslot.CodePermissionDenied)
		})
		is(t, "somebody else", r.decide(&q, "bob"), "")
		if got := ok[ChangeRequest](t)(r.Request(bounded(t), q.ID)); got.State != RequestApproved ||
			got.DecidedBy != "bob" || got.Comment != "fine" || len(got.Change) > 0 {
			t.Errorf("the request is %+v; want it approved by bob, without its change", got)
		}

		// The list moves on: neither the digest that was validated nor a new one is taken.
		old := r.ask("vip", "b")
		r.edit("vip", add("c")...)
		if state := r.requestState(old.ID); state != RequestConflict {
			t.Errorf("after another edit the request is %s; want %s", state, RequestConflict)
		}
		r.unchanged("vip", "an outdated request", func() {
			is(t, "the digest of before", r.decideIn(&old, "bob", old.Mark), freeslot.CodeConflict)
			is(t, "the digest of now", r.decide(&old, "bob"), freeslot.CodeConflict)
		})

		// A change that was tampered with has another digest.
		other := r.ask("vip", "d")
		other.Change = json.RawMessage(`[{"id":"e"}]`)
		r.unchanged("vip", "another change", func() { is(t, "another change", r.decide(&other, "bob"), freeslot.CodeConflict) })

		// It lapses by Redis' clock.
		r.do("HSET", r.k.requests("acme"), other.ID, strings.Replace(
			r.hash(r.k.requests("acme"))[other.ID], fmt.Sprintf(`"until_ms":%d`, other.UntilMS), `"until_ms":1`, 1))
		if state := r.requestState(other.ID); state != RequestLapsed {
			t.Errorf("after its time the request is %s; want %s", state, RequestLapsed)
		}
		late := r.ask("vip", "d")
		if late.ID == other.ID {
			t.Error("a lapsed request is used again; want a new one")
		}
		is(t, "approve a lapsed one", r.decide(&other, "bob"), freeslot.CodeConflict)

		// Rejected and withdrawn ones are over.
		_, err := r.CloseRequest(bounded(t), late.ID, By{Author: "eve"}, false)
		is(t, "reject another's without being an admin", err, freeslot.CodePermissionDenied)
		ok[ChangeRequest](t)(r.CloseRequest(bounded(t), late.ID, By{Author: "bob", Note: "no"}, true))
		is(t, "approve a rejected one", r.decide(&late, "bob"), freeslot.CodeConflict)
		mine := r.ask("vip", "f")
		if got := ok[ChangeRequest](t)(r.CloseRequest(bounded(t), mine.ID, ada, false)); got.State != RequestWithdrawn {
			t.Errorf("its author's rejection makes it %s; want %s", got.State, RequestWithdrawn)
		}
		is(t, "no such request", r.decide(&ChangeRequest{
			ID: "acme." + random128(), Kind: EditList, Target: "vip", Change: mine.Change,
		}, "bob"), freeslot.CodeNotFound)
	})
}

// TestDecisionOfNoChange: a request for what a chain has already is approved too, and is over then.
func TestDecisionOfNoChange(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		put := ChainPut{Chain: "checkout", Document: "{}", By: ada}
		ok[int64](t)(r.PutChain(bounded(t), put))
		put.Seen = 1
		change := func(what string, do func(context.Context, ChainPut) (int64, error)) {
			mark := ok[Mark](t)(r.TargetMark(bounded(t), ChangeChain, put.Chain))
			q := ok[ChangeRequest](t)(r.OpenRequest(bounded(t), ChangeRequest{
				Kind: ChangeChain, Target: put.Chain, Tenant: "acme", Author: "ada", State: RequestPending, Mark: mark,
				Change: []byte(fmt.Sprintf("%q", what)),
			}))
			ctx := ok[context.Context](t)(Deciding(bounded(t), &Decision{
				ID: q.ID, By: "bob", Digest: DigestOf(q.Kind, q.Target, q.Change, mark),
			}))
			if v := ok[int64](t)(do(ctx, put)); v != 1 || r.requestState(q.ID) != RequestApproved {
				t.Errorf("%s: version %d, the request is %s; want 1, approved", what, v, r.requestState(q.ID))
			}
		}
		change("the serving document", r.PutChain)
		put.Document = `{"v":2}`
		ok[int64](t)(r.ShadowChain(bounded(t), put))
		change("the same shadow", r.ShadowChain)
	})
}

// TestDecisionRace: of admins who decide at once, one wins, and the change is made once.
func TestDecisionRace(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		before := r.active("vip")
		q := r.ask("vip", "a")
		var won atomic.Int32
		var racers sync.WaitGroup
		for i := range 8 {
			racers.Go(func() {
				var err error
				if i%4 == 3 {
					_, err = r.CloseRequest(bounded(t), q.ID, By{Author: fmt.Sprint("admin-", i)}, true)
				} else {
					err = r.decideIn(&q, fmt.Sprint("admin-", i), q.Mark)
				}
				switch {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, &freeslot.Error{Code: freeslot.CodeConflict}):
					t.Errorf("admin %d: %v; want conflict", i, err)
				}
			})
		}
		racers.Wait()
		after := ok[Head](t)(r.Head(bounded(t), "vip"))
		approved := r.requestState(q.ID) == RequestApproved
		if won.Load() != 1 || approved != (after.Edited == before.Edited+1) || after.Edited > before.Edited+1 {
			t.Errorf("%d won, approved: %v, %d edits; want one to win, and an edit only of an approval", won.Load(), approved,
				after.Edited-before.Edited)
		}
	})
}

// TestDecisionReplicaDies: the replica that has begun an approved switch dies. Another one cancels
// the switch once its lease ends; the request stays decided.
func TestDecisionReplicaDies(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		served := r.active("vip").Serving.Number
		n := r.build("vip", OpImport)
		mark := ok[Mark](t)(r.TargetMark(ctx, SwitchList, "vip"))
		q := ok[ChangeRequest](t)(r.OpenRequest(ctx, ChangeRequest{
			Kind: SwitchList, Target: "vip", Tenant: "acme", Author: "ada", State: RequestPending, Mark: mark,
			Change: json.RawMessage(`{}`),
		}))
		begin := func() (Operation, error) {
			deciding := ok[context.Context](t)(Deciding(ctx, &Decision{
				ID: q.ID, By: "bob", Digest: DigestOf(q.Kind, q.Target, q.Change, mark),
			}))
			return r.Begin(deciding, "vip", Begin{Kind: OpSwitch, Number: n, Holder: "r1", Serving: served, By: ada})
		}
		op := ok[Operation](t)(begin())
		if state := r.requestState(q.ID); state != RequestApproved {
			t.Fatalf("once the switch has begun the request is %s; want %s", state, RequestApproved)
		}
		r.pass("vip", Lease+time.Second)
		ok[Operation](t)(r.Take(ctx, "vip", op.ID, "r2"))
		if h := ok[Head](t)(r.Cancel(ctx, "vip", op.ID)); h.Serving.Number != served || h.State != Active {
			t.Errorf("the list is %s and serves version %d; want it as before, %d", h.State, h.Serving.Number, served)
		}
		_, err := begin()
		is(t, "the same approval again", err, freeslot.CodeConflict)
	})
}

// TestRequestBounds: a tenant cannot keep others from asking, and closed requests do not pile up.
func TestRequestBounds(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		ask := func(tenant, list string) error {
			_, err := r.OpenRequest(ctx, ChangeRequest{
				Kind: CreateList, Target: list, Tenant: tenant, Author: tenant, State: RequestPending, Change: json.RawMessage(`{}`),
			})
			return err
		}
		for i := range MaxOpenRequests {
			is(t, "a request", ask("acme", fmt.Sprint("list-", i)), "")
		}
		is(t, "one too many", ask("acme", "more"), freeslot.CodeOverloaded)
		is(t, "another tenant", ask("other", "more"), "")
		is(t, "a tenant without such a name", ask("_other", "more"), freeslot.CodeInvalidArgument)
		is(t, "a source", ask(SourceTenant, "more"), "")
		if all := ok[[]ChangeRequest](t)(r.Requests(ctx, "sources")); len(all) != 0 {
			t.Errorf("tenant sources sees %+v; want nothing of the sources", all)
		}
		r.create("list-0") // makes the request for it outdated, so that it leaves its place
		is(t, "instead of an outdated one", ask("acme", "more"), "")
		for i := range requestsKept + 10 {
			_, err := r.OpenRequest(ctx, ChangeRequest{
				Kind: EditList, Target: "deny", Tenant: "acme", Author: "acme", State: RequestUrgent, Summary: fmt.Sprint(i),
			})
			is(t, "an urgent edit", err, "")
		}
		all := ok[[]ChangeRequest](t)(r.Requests(ctx, "acme"))
		if len(all) < MaxOpenRequests+requestsKept || len(all) > MaxOpenRequests+requestsKept+1 {
			t.Errorf("%d requests are kept; want %d open and about %d closed ones", len(all), MaxOpenRequests, requestsKept)
		}
		_, err := r.OpenRequest(ctx, ChangeRequest{Tenant: "acme", Author: "a", Change: make([]byte, MaxRequest+1)})
		is(t, "a change that is too large", err, freeslot.CodePayloadTooLarge)
	})
}

// TestApplications: applications are bounded by tenant, change from the revision that was seen, and
// grants are in the head of a list.
func TestApplications(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		ctx := bounded(t)
		put := func(name, tenant string, seen int64) error {
			_, err := r.PutApplication(ctx, Application{Name: name, Tenant: tenant, Tokens: []string{"web"}, Revision: seen})
			return err
		}
		is(t, "register", put("shop", "acme", 0), "")
		is(t, "register again", put("shop", "acme", 0), freeslot.CodeConflict)
		is(t, "change", put("shop", "acme", 1), "")
		for i := 1; i < MaxTenantApplications; i++ {
			is(t, "register", put(fmt.Sprint("app-", i), "acme", 0), "")
		}
		is(t, "one too many", put("more", "acme", 0), freeslot.CodeOverloaded)
		is(t, "another tenant", put("more", "other", 0), "")
		if all := ok[map[string]Application](t)(r.Applications(ctx)); all["shop"].Revision != 2 || len(all) != MaxTenantApplications+1 {
			t.Errorf("%d applications, shop is %+v; want %d, and revision 2", len(all), all["shop"], MaxTenantApplications+1)
		}

		r.create("vip")
		ok[Head](t)(r.Own(ctx, "vip", ListOwner{"shop", "acme"}))
		ok[Head](t)(r.Grant(ctx, "vip", "olga", []May{MayEdit, MayQuery}))
		h := ok[Head](t)(r.Grant(ctx, "vip", "otto", []May{MaySwitch}))
		if h.Owner != (ListOwner{"shop", "acme"}) || len(h.Grants) != 2 || len(h.Grants["olga"]) != 2 {
			t.Errorf("owner %+v, grants %v; want shop of acme, and grants of olga and otto", h.Owner, h.Grants)
		}
		if h = ok[Head](t)(r.Grant(ctx, "vip", "olga", nil)); len(h.Grants) != 1 {
			t.Errorf("grants %v; want otto's alone", h.Grants)
		}
		_, err := r.Grant(ctx, "vip", "olga", []May{"delete"})
		is(t, "an unknown grant", err, freeslot.CodeInvalidArgument)
		_, err = r.Grant(ctx, "vip", "acme/olga", []May{MayQuery})
		is(t, "a tenant-operator", err, "")
		for _, to := range []string{"", "/olga", "acme/", "_acme/olga"} {
			_, err = r.Grant(ctx, "vip", to, []May{MayQuery})
			is(t, "a grant for "+to, err, freeslot.CodeInvalidArgument)
		}
	})
}
