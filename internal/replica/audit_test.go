package replica

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/redis/acl"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// audited returns the calls in the audit by role, once they have ended.
func audited(t *testing.T, r *Replica) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	waittest.Until(t, "all changes to end", func() bool {
		clear(found)
		ended := true
		for cursor := ""; ; {
			var page api.AuditPage
			text := send(t, r, "GET", "/v1/audit?limit=500&cursor="+cursor, identity.Viewer).text
			if err := json.Unmarshal([]byte(text), &page); err != nil {
				t.Fatalf("%s: %v; want no error", text, err)
			}
			for _, e := range page.Entries {
				found[e.Call+" by "+e.Role] = true
				ended = ended && e.Outcome != "under_way"
			}
			if cursor = page.Cursor; cursor == "" {
				return ended
			}
		}
	})
	return found
}

// Every route and every frame that changes something leaves an entry, and no other does. A new
// route gets there by its row in the table of rights.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	r := withRoles(t)
	want := map[string]bool{}
	numbered := strings.NewReplacer("{version}", "1", "{index}", "1", "{", "", "}", "")
	for _, role := range identity.Roles {
		who := identity.Principal{Role: role}
		for _, route := range routesOf(t, r) {
			if role.GrantOf(route.id) == identity.None {
				continue
			}
			got := send(t, r, route.method, numbered.Replace(route.path), role)
			if got.status == http.StatusForbidden {
				t.Errorf("%s by %s: %+v, expected it allowed", route.id, role, got)
			}
			if who.Audited(route.id) {
				want[route.id+" by "+string(role)] = true
			}
		}
		checkFrames(t, r, role)
		if role.GrantOf(identity.FrameCancel) != identity.None && who.Audited(identity.FrameCancel) {
			want[identity.FrameCancel+" by "+string(role)] = true
		}
	}
	if len(want) < 100 {
		t.Errorf("%d kinds of changes are audited, expected over 100: %v", len(want), slices.Sorted(maps.Keys(want)))
	}
	if diff := cmp.Diff(want, audited(t, r)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Users of Redis for agents, applications with locks, services and readers of lists can neither
// read nor write the audit.
func TestAuditIsClosed(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	layout := script.Layouts(redis.Prefix(t), 1, redis.IsCluster())[0]
	client := redis.Client(t)
	run := func(args ...string) string {
		t.Helper()
		text, err := client.Do(waittest.Context(t), client.B().Arbitrary(args...).Build()).ToString()
		if err != nil {
			return err.Error()
		}
		return text
	}
	for role, allowed := range map[script.Role]bool{
		script.RoleReplica: true, script.RoleAgent: false, script.RoleLock: false, script.RoleRegistry: false,
		script.RoleListReader: false,
	} {
		own := []script.Layout{layout}
		if role == script.RoleLock { // locks have a prefix of their own
			own = script.Layouts(layout.Prefix+"-lock", 1, layout.Sharded)
		}
		rights, err := acl.Of(role, script.AnyNode, own, Access()...)
		if err != nil {
			t.Fatal(err)
		}
		user := "audit-" + string(role) + layout.Prefix
		run(append([]string{"ACL", "SETUSER", user, "on", "nopass"}, rights.Rules()...)...)
		defer run("ACL", "DELUSER", user)
		for _, family := range []string{"audit:changes", "audit:open", "audit:own", "audit:own-open"} {
			key := layout.Key(family, "")
			for _, command := range []string{"XREVRANGE", "XADD", "HSET", "HGETALL"} {
				args := map[string]string{"XREVRANGE": "+ -", "XADD": "* entry x", "HSET": "change entry"}[command]
				got := run(append([]string{"ACL", "DRYRUN", user, command, key}, strings.Fields(args)...)...)
				if (got == "OK") != allowed {
					t.Errorf("%s %s by %s: %s, expected allowed: %t", command, key, role, got, allowed)
				}
			}
		}
	}
}
