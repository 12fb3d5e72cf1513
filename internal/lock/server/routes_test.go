package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// What is tested has the rights of a replica in Redis, and the tests those of the default user.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, lock.AdminAccess) }

// fakeLocks has one lock, a/b, and keeps what it is called with.
type fakeLocks struct {
	calls []string
	err   error
}

func (f *fakeLocks) use(d *api.Deps) { d.Routes = []api.Routes{routesOf(f)} }

func (f *fakeLocks) call(ctx context.Context, parts ...any) error {
	if _, ok := ctx.Deadline(); !ok {
		return fmt.Errorf("%v has no deadline", parts)
	}
	f.calls = append(f.calls, fmt.Sprintf("%+v", parts))
	return f.err
}

var state = lock.State{
	Key: "a/b", Holder: "h:1", Token: 1_700_000_000_000_001, Since: time.UnixMilli(5), Left: 7 * time.Second, Lease: 9 * time.Second, Renewed: time.UnixMilli(6), Entries: 2, Revoked: "r", Waiting: 1,
}

func (f *fakeLocks) List(ctx context.Context, cursor string, limit int) ([]lock.State, string, error) {
	return []lock.State{state}, "next", f.call(ctx, "list", cursor, limit)
}

func (f *fakeLocks) Get(ctx context.Context, key string, waiters int) (lock.State, error) {
	s := state
	s.Waiters = []lock.Waiter{{Holder: "h:2", Process: "p", Silent: 3 * time.Millisecond}}
	return s, f.call(ctx, "get", key, waiters)
}

func (f *fakeLocks) Revoke(ctx context.Context, r lock.Revocation) (int64, error) {
	return state.Token, f.call(ctx, r)
}

func (f *fakeLocks) Audit(ctx context.Context, limit int) ([]lock.Audited, error) {
	return []lock.Audited{{At: time.UnixMilli(9), Key: "a/b", Holder: "h:1", Token: 8, Operator: "ops/ann", Reason: "r", Now: true}}, f.call(ctx, "audit", limit)
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	locks := new(fakeLocks)
	f := apitest.New(t, api.Config{}, apitest.WithTokens, locks.use)
	root, acme := []string{"Authorization", "Bearer root-token"}, []string{"Authorization", "Bearer acme-token"}
	shown := `"key":"a/b","held":true,"holder":"h:1","token":"1700000000000001","since_ms":5,"left_ms":7000,"lease_ms":9000,"renewed_ms":6,"entries":2,"revoked":"r","waiting":1`
	for _, c := range []struct{ method, target, content, call, answer string }{
		{"GET", "/v1/locks?cursor=x&limit=7", "", "[list x 7]", `{"locks":[{` + shown + `}],"cursor":"next"}`},
		{"GET", "/v1/locks/a%2Fb", "", "[get a/b 1000]", `{` + shown + `,"waiters":[{"holder":"h:2","process":"p","silent_ms":3}]}`},
		{
			"POST", "/v1/locks/a%2Fb/revoke", `{"reason":"deploy","author":"ann","token":"12"}`,
			"[{Key:a/b Token:12 Operator:ops/ann Reason:deploy Now:false}]", `{"key":"a/b","token":"1700000000000001","now":false,"text":"its holder stops`,
		},
		{
			"POST", "/v1/locks/a%2Fb/revoke", `{"reason":"deploy","now":true}`,
			"[{Key:a/b Token:0 Operator:ops Reason:deploy Now:true}]", `{"key":"a/b","token":"1700000000000001","now":true,"text":"the lock is free`,
		},
		{"GET", "/v1/lock-audit", "", "[audit 100]", `{"entries":[{"at_ms":9,"key":"a/b","holder":"h:1","token":"8","operator":"ops/ann","reason":"r","now":true}]}`},
	} {
		locks.calls, locks.err = nil, nil
		if got := f.Do(t, c.method, c.target, c.content, root...); got.Status != http.StatusOK || !strings.HasPrefix(got.Text, c.answer) || fmt.Sprint(locks.calls) != "["+c.call+"]" {
			t.Errorf("%s %s: %d %s, called %q", c.method, c.target, got.Status, got.Text, locks.calls)
		}
		f.Do(t, c.method, c.target, c.content, acme...).Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		f.Do(t, c.method, c.target, c.content).Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
		if len(locks.calls) != 1 {
			t.Error(locks.calls)
		}
		locks.err = &freeslot.Error{Code: freeslot.CodeConflict, Field: "token", Message: "its holder has changed"}
		f.Do(t, c.method, c.target, c.content, root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
	}
	locks.err = errors.New("unexpected")
	f.Do(t, "GET", "/v1/locks", "", root...).Refusal(t, http.StatusInternalServerError, freeslot.CodeInternal)
	locks.calls = nil
	for _, c := range []struct{ method, target, content string }{
		{"GET", "/v1/locks?limit=0", ""},
		{"GET", "/v1/locks?limit=1001", ""},
		{"GET", "/v1/lock-audit?limit=0", ""},
		{"POST", "/v1/locks/a/revoke", ""},
		{"POST", "/v1/locks/a/revoke", `{}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"a\nb"}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"` + strings.Repeat("x", 257) + `"}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"a","author":"\u0007"}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"a","token":"0"}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"a","token":"x"}`},
		{"POST", "/v1/locks/a/revoke", `{"reason":"a","force":true}`},
	} {
		f.Do(t, c.method, c.target, c.content, root...).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	}
	if len(locks.calls) > 0 {
		t.Error(locks.calls)
	}
}

// TestOnRedis: the routes of a replica, with the rights of one, see and end a hold.
func TestOnRedis(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		prefix := redis.Prefix(t)
		m, err := lock.New(lock.Options{RedisURL: redis.AdminURL(), KeyPrefix: prefix})
		if err == nil {
			err = m.Start(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		l, err := m.Get(lock.Config{Key: "tenant/7 {x}"})
		if err != nil {
			t.Fatal(err)
		}
		held, err := l.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		admin := lock.NewAdmin(redis.RoleClient(t), prefix, redis.IsCluster(), zaptest.NewLogger(t))
		f := apitest.New(t, api.Config{}, func(d *api.Deps) { d.Routes = []api.Routes{routesOf(admin)} })
		token := fmt.Sprint(held.Token())
		for _, target := range []string{"/v1/locks", "/v1/locks/tenant%2F7%20%7Bx%7D"} {
			waittest.Until(t, "the lock at "+target, func() bool {
				return strings.Contains(f.Do(t, "GET", target, "").Text, `"token":"`+token+`"`)
			})
		}
		f.Do(t, "POST", "/v1/locks/tenant%2F7%20%7Bx%7D/revoke", `{"reason":"r","token":"5"}`).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
		if got := f.Do(t, "POST", "/v1/locks/tenant%2F7%20%7Bx%7D/revoke", `{"reason":"r","now":true,"token":"`+token+`"}`); got.Status != http.StatusOK {
			t.Error(got.Text)
		}
		if got := f.Do(t, "GET", "/v1/locks/tenant%2F7%20%7Bx%7D", ""); got.Body["held"] != false {
			t.Error(got.Text)
		}
		if got := f.Do(t, "GET", "/v1/lock-audit", ""); !strings.Contains(got.Text, `"token":"`+token+`"`) {
			t.Error(got.Text)
		}
		f.Do(t, "POST", "/v1/locks/tenant%2F7%20%7Bx%7D/revoke", `{"reason":"r"}`).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
		f.Do(t, "GET", "/v1/locks/a%0A", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		f.Do(t, "GET", "/v1/locks?cursor=nonsense", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	})
}
