package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/identity"
)

// GatewaySource is the source of nodes' tokens.
const GatewaySource = "gateway.tokens_file"

// TokenStatus is a token, without anything that opens a door.
type TokenStatus struct {
	Source string              `json:"source" enum:"tokens,tokens_file,gateway.tokens_file" doc:"The configuration key that has it."`
	Name   string              `json:"name,omitempty" doc:"Its owner; absent for a token of the configuration, which has none."`
	Role   identity.Role       `json:"role,omitempty" doc:"What the caller may do; absent for a node's token."`
	Tenant string              `json:"tenant,omitempty" doc:"The tenant that owns the caller's jobs; absent for a node's token."`
	Scopes map[string][]string `json:"scopes,omitempty" doc:"Which lists, services and documents the caller may read, as patterns. A kind that is absent is not restricted."`
	Nodes  []string            `json:"nodes,omitempty" doc:"The nodes that a node's token may be, as patterns."`
	// Certificate is documented in its tag.
	Certificate string `json:"certificate,omitempty" doc:"The name in the certificate that must come with a node's token; absent: none must."`
	ExpiresMS   int64  `json:"expires_ms,omitempty" doc:"From then on it is unknown, in milliseconds since 1970; absent means never."`
	LastSeenMS  int64  `json:"last_seen_ms,omitempty" doc:"When a caller last came with it to this replica, in milliseconds since 1970, to the second. A client's session counts while it is open. Absent: not since the replica's start."`
}

// TokenProblem is why some tokens cannot be used.
type TokenProblem struct {
	Source  string `json:"source" doc:"The configuration key."`
	Problem string `json:"problem" doc:"What is wrong, and where."`
}

// TokenPage is one page of a listing.
type TokenPage struct {
	Tokens   []TokenStatus  `json:"tokens" doc:"In the order of their names."`
	Problems []TokenProblem `json:"problems,omitempty" doc:"The first 100 of each source, on the first page."`
	Cursor   string         `json:"cursor,omitempty" doc:"Continues the listing; absent at its end."`
}

// Whoami is the caller.
type Whoami struct {
	Name      string              `json:"name,omitempty" doc:"The name of the token, or the subject of a signed one; absent for a token of the configuration, and where no token is needed."`
	Role      identity.Role       `json:"role" doc:"What the caller may do."`
	Tenant    string              `json:"tenant" doc:"The tenant that owns the caller's jobs."`
	Scopes    map[string][]string `json:"scopes,omitempty" doc:"Which lists, services and documents the caller may read, as patterns. A kind that is absent is not restricted."`
	ExpiresMS int64               `json:"expires_ms,omitempty" doc:"From then on the token is unknown, in milliseconds since 1970; absent means never."`
}

type (
	tokensInput struct {
		Cursor string `query:"cursor" maxLength:"160" doc:"The cursor of the page before."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most this many tokens."`
	}
	tokensOutput struct{ Body TokenPage }
	whoamiOutput struct{ Body Whoami }
)

func (s *Server) registerTokens(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Tags: []string{"tokens"},
		Summary: "List tokens",
		Description: "As this replica has read them, without secrets and hashes. Tokens that an issuer has signed are in " +
			"no list.",
	}, handle(s, "tokens", s.listTokens))
	huma.Register(api, huma.Operation{
		OperationID: "whoami", Method: http.MethodGet, Path: "/v1/whoami", Tags: []string{"tokens"},
		Summary: "Show who the caller is", Description: "As the caller's token says.",
	}, handle(s, "whoami", func(ctx context.Context, _ *struct{}) (*whoamiOutput, error) {
		who := Caller(ctx)
		return &whoamiOutput{Whoami{who.Name, who.Role, who.Tenant, scopesOf(&who.Principal), Millis(who.Expires)}}, nil
	}))
}

func (s *Server) listTokens(_ context.Context, in *tokensInput) (*tokensOutput, error) {
	after, err := parseTokenCursor(in.Cursor)
	if err != nil {
		return nil, err
	}
	var page TokenPage
	all, problems := s.tokens()
	if in.Cursor == "" {
		page.Problems = problems
	}
	page.Tokens = []TokenStatus{}
	at := tokenCursor{}
	for i := range all {
		if all[i].Name != at.name {
			at = tokenCursor{name: all[i].Name}
		}
		at.count++
		if cmp.Or(strings.Compare(at.name, after.name), at.count-after.count) <= 0 {
			continue
		}
		page.Tokens = append(page.Tokens, all[i])
		if len(page.Tokens) == in.Limit && i < len(all)-1 {
			page.Cursor = at.String()
			break
		}
	}
	return &tokensOutput{page}, nil
}

// tokens returns the tokens of all sources, by name. The order of one name's tokens does not change
// while they do not.
func (s *Server) tokens() (all []TokenStatus, problems []TokenProblem) {
	known, bad := s.deps.Auth.Tokens()
	for i := range known {
		k := &known[i]
		all = append(all, TokenStatus{
			Source: k.Source, Name: k.Name, Role: k.Role, Tenant: k.Tenant, Scopes: scopesOf(&k.Principal),
			ExpiresMS: Millis(k.Expires), LastSeenMS: Millis(k.Seen),
		})
	}
	for _, p := range bad {
		problems = append(problems, TokenProblem{p.Source, p.Text})
	}
	if s.deps.GatewayTokens != nil {
		nodes, bad := s.deps.GatewayTokens()
		all = append(all, nodes...)
		for _, text := range bad {
			problems = append(problems, TokenProblem{GatewaySource, text})
		}
	}
	slices.SortFunc(all, func(a, b TokenStatus) int {
		return cmp.Or(
			strings.Compare(a.Name, b.Name), strings.Compare(a.Source, b.Source), strings.Compare(a.Tenant, b.Tenant),
			strings.Compare(string(a.Role), string(b.Role)), cmp.Compare(a.ExpiresMS, b.ExpiresMS),
		)
	})
	return all, problems
}

// tokenCursor is the place of a token: how many of this name there are up to it.
type tokenCursor struct {
	name  string
	count int
}

func (c tokenCursor) String() string { return fmt.Sprintf("%s/%d", c.name, c.count) }

func parseTokenCursor(text string) (c tokenCursor, err error) {
	if text == "" {
		return c, nil
	}
	name, count, _ := strings.Cut(text, "/")
	c.name = name
	if c.count, err = strconv.Atoi(count); err != nil || c.count < 1 {
		return c, freeslot.Invalid("cursor", "is %q, expected the cursor of the page before", text)
	}
	return c, nil
}

// scopesOf returns nil for a caller who may read everything.
func scopesOf(p *identity.Principal) map[string][]string {
	scopes := map[string][]string{}
	for scope, patterns := range map[identity.Scope][]string{
		identity.Lists: p.Scopes.Lists, identity.Services: p.Scopes.Services, identity.Documents: p.Scopes.Documents,
	} {
		if patterns != nil {
			scopes[string(scope)] = patterns
		}
	}
	if len(scopes) == 0 {
		return nil
	}
	return scopes
}

// Millis returns the time in milliseconds since 1970, and 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
