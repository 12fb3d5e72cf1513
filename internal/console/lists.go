package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/identity"
)

const (
	// listPeriod is the time between two looks at a list, and figuresPeriod at what clients have
	// counted, which replicas add up each 30 s.
	listPeriod    = 3 * time.Second
	figuresPeriod = 15 * time.Second
	// requestCalls bounds the calls for requests to change lists, beside two for each tenant that has
	// some.
	requestCalls = 3
)

// part is the answer of a route in a topic. In its path * stands for the topic's argument, or **
// for the first part of an argument that a colon parts, and * for the rest.
type part struct {
	name, path string
	// calls is how many calls the route makes at most. guarded is true if it looks at the list
	// before, for callers who are no admins.
	calls   int
	guarded bool
}

// listKinds are the topics of name lists and chains, by name. Tenants' operators see the lists of
// their tenant, and what their names were granted; of requests and applications their tenant's.
var listKinds = map[string]*kind{
	"list": {
		needs: []string{"get-list", "list-versions", "list-uploads"}, argument: true, asks: true, named: true,
		every: listPeriod,
		compute: parts(
			part{"list", "/v1/lists/*", 1, true}, part{"versions", "/v1/lists/*/versions", 2, true},
			part{"uploads", "/v1/lists/*/uploads", 0, true},
		),
	},
	"list-clients": {
		needs: []string{"list-clients"}, argument: true, asks: true, named: true, every: listPeriod,
		compute: parts(part{"", "/v1/lists/*/clients", 1, true}),
	},
	"list-statistics": {
		needs: []string{"list-statistics"}, argument: true, asks: true, named: true, every: figuresPeriod,
		compute: parts(part{"", "/v1/lists/*/statistics?since_ms=**", 2, true}),
	},
	"list-sources": {
		needs: []string{"list-list-sources"}, asks: true, every: listPeriod,
		compute: parts(part{"", "/v1/list-sources", 2, false}),
	},
	"list-requests":     {needs: []string{"list-requests"}, asks: true, every: listPeriod, compute: requests(true)},
	"list-requests-all": {needs: []string{"list-requests"}, asks: true, every: listPeriod, compute: requests(false)},
	"list-request": {
		needs: []string{"get-request"}, argument: true, asks: true, every: listPeriod,
		compute: parts(part{"", "/v1/list-requests/*", requestCalls, false}),
	},
	"list-applications": {
		needs: []string{"list-applications"}, asks: true, every: listPeriod,
		compute: parts(part{"", "/v1/list-applications", 1, false}),
	},
	"chain": {
		needs: []string{"get-chain", "list-chain-versions", "list-chain-clients"}, argument: true, asks: true,
		every: listPeriod,
		compute: parts(
			part{"chain", "/v1/chains/*", 1, false}, part{"versions", "/v1/chains/*/versions", 2, false},
			part{"clients", "/v1/chains/*/clients", 2, false},
		),
	},
	"chain-statistics": {
		needs: []string{"chain-statistics"}, argument: true, asks: true, every: figuresPeriod,
		compute: parts(part{"", "/v1/chains/*/statistics?since_ms=**", 2, false}),
	},
}

// parts returns what computes a topic of answers of routes, each under its name. A single part
// without a name is the whole topic.
func parts(all ...part) func(ctx context.Context, h *hub, t *topic) (any, int, error) {
	return func(ctx context.Context, h *hub, t *topic) (any, int, error) {
		_, argument, _ := strings.Cut(t.key.name, ":")
		first, rest, two := strings.Cut(argument, ":")
		if !two {
			first, rest = "", argument
		}
		fill := strings.NewReplacer("**", url.QueryEscape(first), "*", url.PathEscape(rest))
		calls, data := 0, make(map[string]json.RawMessage, len(all))
		for _, p := range all {
			calls += p.calls
			if p.guarded && t.who.Role != identity.Admin {
				calls++
			}
			answer, err := h.answerOf(ctx, t, fill.Replace(p.path))
			if err != nil {
				return nil, calls, err
			}
			data[p.name] = answer
		}
		if whole := data[""]; whole != nil {
			return whole, calls, nil
		}
		return data, calls, nil
	}
}

// requests returns what computes the topic of requests to change lists: all, or the pending ones.
// Redis keeps them by tenant.
func requests(pending bool) func(ctx context.Context, h *hub, t *topic) (any, int, error) {
	return func(ctx context.Context, h *hub, t *topic) (any, int, error) {
		answer, err := h.answerOf(ctx, t, "/v1/list-requests")
		if err != nil {
			return nil, requestCalls, err
		}
		var found struct {
			Requests []json.RawMessage `json:"requests"`
		}
		if err := json.Unmarshal(answer, &found); err != nil {
			return nil, requestCalls, err
		}
		shown, of := []json.RawMessage{}, make(map[string]bool)
		for _, text := range found.Requests {
			var r struct{ State, Tenant string }
			if err := json.Unmarshal(text, &r); err != nil {
				return nil, requestCalls, err
			}
			if of[r.Tenant] = true; !pending || r.State == "pending" {
				shown = append(shown, text)
			}
		}
		found.Requests = shown
		return found, requestCalls + 2*len(of), nil
	}
}
