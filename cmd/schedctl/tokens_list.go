package main

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/api"
)

type tokensListCmd struct{}

// Help is shown below the flags.
func (tokensListCmd) Help() string {
	return `For admins. Nothing here opens a door: secrets and their hashes are not shown. SEEN is when a caller last came
with the token to the replica that answers, since its start. Problems go to standard error.`
}

// Run lists tokens.
func (*tokensListCmd) Run(a *app) error {
	all, query := api.TokenPage{Tokens: []api.TokenStatus{}}, url.Values{}
	for {
		var page api.TokenPage
		if err := a.call(http.MethodGet, "/v1/tokens", query, nil, &page); err != nil {
			return err
		}
		all.Tokens = append(all.Tokens, page.Tokens...)
		all.Problems = append(all.Problems, page.Problems...)
		if page.Cursor == "" {
			break
		}
		query.Set("cursor", page.Cursor)
	}
	if a.json {
		return a.printJSON(all)
	}
	rows := [][]string{{"NAME", "SOURCE", "ROLE", "TENANT", "FOR", "EXPIRES", "SEEN"}}
	for i := range all.Tokens {
		t := &all.Tokens[i]
		reach := strings.Join(t.Nodes, ", ")
		if t.Source != api.GatewaySource {
			reach = scopeText(t.Scopes)
		} else if t.Certificate != "" {
			reach += " with the certificate " + t.Certificate
		}
		rows = append(rows, []string{
			dash(t.Name), t.Source, dash(string(t.Role)), dash(t.Tenant), dash(shorten(reach, maxCell)), clock(t.ExpiresMS),
			clock(t.LastSeenMS),
		})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	for _, p := range all.Problems {
		a.warn("%s: %s", p.Source, p.Problem)
	}
	return nil
}

type whoamiCmd struct{}

// Run shows the caller.
func (*whoamiCmd) Run(a *app) error {
	var who api.Whoami
	if err := a.call(http.MethodGet, "/v1/whoami", nil, nil, &who); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(who)
	}
	return table(a.out, [][]string{
		{"NAME", "ROLE", "TENANT", "FOR", "EXPIRES"},
		{dash(who.Name), string(who.Role), who.Tenant, dash(scopeText(who.Scopes)), clock(who.ExpiresMS)},
	})
}

// scopeText returns scopes such as "lists vip-*; services none".
func scopeText(scopes map[string][]string) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(scopes)) {
		patterns := "none"
		if len(scopes[kind]) > 0 {
			patterns = strings.Join(scopes[kind], ", ")
		}
		parts = append(parts, kind+" "+patterns)
	}
	return strings.Join(parts, "; ")
}
