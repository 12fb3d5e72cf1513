package console

import (
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
)

// TestServiceTopics: services and locks are for the roles that see all tenants, and a topic has
// what its routes say, whatever the name.
func TestServiceTopics(t *testing.T) {
	t.Parallel()
	inBubble(t, tokens, roomy, func(s *site) {
		s.set("/admin/registry/services/tts", `{"name":"tts","instances":1}`)
		s.set("/v1/locks/a:b%2Fc%2Ed", `{"key":"a:b/c.d"}`)
		for _, role := range identity.Roles {
			p, got := s.mustOpen(role), map[string]frame{}
			p.send(`{"want":["services","service:tts","locks","lock:a:b/c.d"]}`)
			for len(got) < 4 {
				f := p.next()
				got[f.Topic] = f
			}
			_ = p.CloseNow()
			sees := role != identity.Client && role != identity.TenantOperator
			for topic, f := range got {
				if denied := f.Error != nil && f.Error.Code == freeslot.CodePermissionDenied; denied == sees {
					t.Errorf("%s gets %s as %+v; want it: %v", role, topic, f, sees)
				}
			}
			if !sees {
				continue
			}
			if data := string(got["service:tts"].Data); data != `{"page":{},"service":{"name":"tts","instances":1}}` {
				t.Errorf("the service is %s; want it with its first instances", data)
			}
			if data := string(got["lock:a:b/c.d"].Data); data != `{"key":"a:b/c.d"}` {
				t.Errorf("the lock is %s; want what the route says of a:b/c.d", data)
			}
		}
	})
}
