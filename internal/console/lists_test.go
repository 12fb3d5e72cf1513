package console

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
)

// wants lists the topics of a page that shows a list or a chain.
const wants = `{"want":["list:vip","list-clients:vip","list-statistics:900000:vip","list-sources","chain:vip","chain-statistics:900000:vip"]}`

// TestListTopics: each role sees what its calls show, a topic asks the routes that it stands for,
// and tenants' operators of different names ask for themselves.
func TestListTopics(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/v1/lists/vip", `{"name":"vip"}`)
		s.set("/v1/lists/vip/statistics?since_ms=900000", `{"lookups":7}`)
		for _, role := range identity.Roles {
			p, got := s.mustOpen(role), map[string]frame{}
			p.send(wants)
			for len(got) < 6 {
				f := p.next()
				got[f.Topic] = f
			}
			_ = p.CloseNow()
			sees := role != identity.Client && role != identity.TenantOperator
			for topic, f := range got {
				allowed := sees || role == identity.TenantOperator && (strings.HasPrefix(topic, "list:") ||
					strings.HasPrefix(topic, "list-clients:") || strings.HasPrefix(topic, "list-statistics:"))
				if denied := f.Error != nil && f.Error.Code == freeslot.CodePermissionDenied; denied == allowed {
					t.Errorf("%s gets %s as %+v; want it: %v", role, topic, f, allowed)
				}
			}
			if f := got["list:vip"]; role == identity.Viewer &&
				string(f.Data) != `{"list":{"name":"vip"},"uploads":{},"versions":{}}` {
				t.Errorf("the list is %s; want it with its versions and uploads", f.Data)
			}
			if f := got["list-statistics:900000:vip"]; role == identity.Viewer && string(f.Data) != `{"lookups":7}` {
				t.Errorf("the statistics are %s; want what the route says", f.Data)
			}
		}
	})
}

// TestListViewersShare: many pages of a list cost what one costs, unless they see different things.
func TestListViewersShare(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	auth := func(t *testing.T) *identity.Authenticator {
		var lines strings.Builder
		for _, name := range []string{"viewer", "operator", "admin", "tenant-operator", "tenant-operator2"} {
			role := "role: " + strings.TrimSuffix(name, "2")
			lines.WriteString(strings.Replace(tokenLine(name, ""), "role: viewer", role, 1))
		}
		writeText(t, file, lines.String())
		return fileTokens(t, file)
	}
	measure := func(roles ...identity.Role) map[string]int {
		var calls map[string]int
		inBubble(t, auth, roomy, func(s *site) {
			for _, role := range roles {
				p := s.mustOpen(role)
				p.send(`{"want":["list:vip"]}`)
				p.drain()
				defer p.CloseNow()
			}
			synctest.Wait()
			s.calls()
			time.Sleep(time.Minute - time.Millisecond)
			calls = s.calls()
		})
		return calls
	}
	const route = "/v1/lists/vip"
	one := measure(identity.Viewer)[route]
	many := measure(identity.Viewer, identity.Admin, identity.Operator, identity.Viewer)[route]
	two := measure(identity.TenantOperator, "tenant-operator2")[route]
	if one < 15 || abs(many-one) > 1 || two < one+5 {
		t.Errorf("one viewer asks %d times a minute, many of the same %d, two of different rights %d; want the same, and more",
			one, many, two)
	}
}
