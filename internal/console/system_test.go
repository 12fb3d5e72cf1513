package console

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
)

// TestSystemTopics: each role sees what its calls show. Tenants' callers see what is their
// tenant's, and their pages get no frame of another tenant.
func TestSystemTopics(t *testing.T) {
	t.Parallel()
	auth := func(*testing.T) *identity.Authenticator {
		var all []identity.Credential
		for _, tenant := range []string{"acme", "beta"} {
			for _, role := range identity.Roles {
				all = append(all, identity.Credential{
					Token: tenant + "-" + string(role), Principal: identity.Principal{Tenant: tenant, Role: role},
				})
			}
		}
		return identity.NewAuthenticator(all, "default", false)
	}
	targets := map[string]string{
		"schedule:acme:nightly": "/v1/schedules/nightly?runs=5&tenant=acme",
		"schedule::nightly":     "/v1/schedules/nightly?runs=5&tenant=",
		"operations":            "/v1/bulk", "operation:01J": "/v1/bulk/01J",
		"tenants": "/v1/tenants", "tenant:acme": "/v1/tenants?tenant=acme",
		"list-requests": "/v1/list-requests", "list-request:acme.1": "/v1/list-requests/acme.1",
		"list-applications": "/v1/list-applications",
		"replicas":          "/v1/replicas/status", "pools": "/v1/pools", "pool:eu": "/v1/pools/eu?limit=1",
	}
	inBubble(t, auth, roomy, func(s *site) {
		var want []string
		for topic, target := range targets {
			s.set(target, `{"of":"$TENANT"}`)
			want = append(want, `"`+topic+`"`)
		}
		s.set(
			"/v1/list-requests", `{"requests":[{"state":"pending","tenant":"$TENANT"},{"state":"rejected","tenant":"$TENANT"}]}`,
		)
		for _, caller := range []string{
			"acme-viewer", "acme-client", "beta-client", "acme-tenant-operator", "beta-tenant-operator",
		} {
			tenant, role, _ := strings.Cut(caller, "-")
			p, got := s.mustOpen(identity.Role(caller)), map[string]frame{}
			p.send(`{"want":[` + strings.Join(want, ",") + `]}`)
			for len(got) < len(targets) {
				f := p.next()
				got[f.Topic] = f
			}
			for topic, f := range got {
				name, _, _ := strings.Cut(topic, ":")
				sees := role == "viewer"
				switch name {
				case scheduleTopic, "operations", "operation", "tenants", "tenant":
					sees = true
				case "list-requests", "list-request", "list-applications":
					sees = sees || role == "tenant-operator"
				}
				shown := fmt.Sprintf(`{"of":%q}`, tenant)
				if topic == "list-requests" {
					shown = fmt.Sprintf(`{"requests":[{"state":"pending","tenant":%q}]}`, tenant)
				}
				denied := f.Error != nil && f.Error.Code == freeslot.CodePermissionDenied
				if denied == sees || sees && string(f.Data) != shown {
					t.Errorf("%s gets %s as %s, %+v; want it: %v, and then %s", caller, topic, f.Data, f.Error, sees, shown)
				}
			}
			// The pages of the others stay: they must not get what this one gets.
			defer p.CloseNow()
		}
	})
}

// TestTopicsTellTheirCalls: what is asked by tenant costs its calls by tenant.
func TestTopicsTellTheirCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/list-requests", `{"requests":[{"tenant":"a"},{"tenant":"b"},{"tenant":"a"}]}`)
		s.set("/v1/tenants", `{"tenants":[`+strings.Repeat("{},", 249)+`{}]}`)
		for target, want := range map[string]int{"list-requests-all": requestCalls + 4, "tenants": tenantCalls + 2} {
			key, k, refusal := parseTopic(target, &identity.Principal{Role: identity.Admin})
			if refusal != nil {
				t.Fatal(refusal)
			}
			_, calls, err := k.compute(t.Context(), s.hub, &topic{key: key, kind: k})
			if err != nil || calls != want {
				t.Errorf("%s made %d calls, %v; want %d", target, calls, err, want)
			}
		}
	})
}

// TestEachTopicIsShared: ten viewers of a topic cost what one costs, whatever the topic; and the
// documentation names each.
func TestEachTopicIsShared(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	var batches [][]string
	for _, all := range []map[string]*kind{kinds, listKinds, serviceKinds, systemKinds} {
		for name, k := range all {
			if !strings.Contains(string(docs), "`"+name+"`") && !strings.Contains(string(docs), "`"+name+":") {
				t.Errorf("docs/console.md does not name topic %s", name)
			}
			if k.argument {
				name += ":a:b"
			}
			if n := len(batches); n == 0 || len(batches[n-1]) == 6 {
				batches = append(batches, nil)
			}
			batches[len(batches)-1] = append(batches[len(batches)-1], `"`+name+`"`)
		}
	}
	measure := func(topics []string, viewers int) (calls map[string]int) {
		inBubble(t, tokens, roomy, func(s *site) {
			for i := range viewers {
				p := s.mustOpen([]identity.Role{identity.Viewer, identity.Operator}[i%2])
				p.send(`{"want":[` + strings.Join(topics, ",") + `]}`)
				p.drain()
				defer p.CloseNow()
			}
			synctest.Wait()
			s.calls()
			s.looks.Store(0)
			time.Sleep(time.Minute - time.Millisecond)
			calls = s.calls()
			calls["looks at nodes"] = int(s.looks.Load())
		})
		return calls
	}
	for _, topics := range batches {
		one, ten := measure(topics, 1), measure(topics, 10)
		for target, n := range ten {
			// A minute begins elsewhere in their turns, and turns differ by who comes first. Each for
			// himself they would ask ten times as often.
			if abs(n-one[target]) > 2+one[target]/2 {
				t.Errorf("ten viewers of %v ask %s %d times a minute; want %d as one viewer", topics, target, n, one[target])
			}
		}
	}
}
