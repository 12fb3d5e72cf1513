package namelist

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/script"
)

// Bounds of applications and grants.
const (
	// MaxApplications and MaxTenantApplications bound all applications, and the ones of a tenant.
	MaxApplications       = 1000
	MaxTenantApplications = 50
	// MaxTokens bounds the tokens of an application.
	MaxTokens = 50
	// MaxGrants bounds the grants of a list: they are in its head, which readers get.
	MaxGrants = 32
)

// Application asks lists with its tokens, and owns lists.
type Application struct {
	// The tags document Name and the rest for readers of the API.
	Name    string   `json:"name"`
	Tenant  string   `json:"tenant" doc:"Its owner's; fixed."`
	Contact string   `json:"contact,omitempty" doc:"Whom to ask about it; at most 256 bytes."`
	Tokens  []string `json:"tokens,omitempty" doc:"Names of the tokens with which it asks lists, at most 50."`
	// Revision is 0 for an application that is not registered.
	Revision int64 `json:"revision" doc:"Changes with each change. A change names the one that the caller saw, 0 for a new application; another one is a conflict."`
}

// Validate checks an application to register or to change.
func (a *Application) Validate() error {
	var found freeslot.FieldErrors
	found.Add(freeslot.ValidateName("application", a.Name))
	found.Add(freeslot.ValidateName("tenant", a.Tenant))
	line(&found, "contact", a.Contact)
	if len(a.Tokens) > MaxTokens {
		found.Addf("tokens", "are %d, expected at most %d", len(a.Tokens), MaxTokens)
	}
	for i, name := range a.Tokens[:min(len(a.Tokens), MaxTokens)] {
		line(&found, fmt.Sprintf("tokens[%d]", i), name)
	}
	if a.Revision < 0 {
		found.Addf("revision", "is %d, expected the revision that the change was made from, 0 for a new one", a.Revision)
	}
	return found.Err()
}

// Applications returns all applications by their names.
func (c *Control) Applications(ctx context.Context) (map[string]Application, error) {
	read := c.runner.B().Hgetall().Key(c.k.applications()).Build()
	all, err := c.runner.Do(ctx, "applications", read).AsStrMap()
	if err != nil {
		return nil, fmt.Errorf("applications: %w", err)
	}
	out := make(map[string]Application, len(all))
	for name, text := range all {
		var a Application
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return nil, fmt.Errorf("application %s: %w", name, err)
		}
		out[name] = a
	}
	return out, nil
}

// PutApplication registers or changes an application. a.Revision is the one that the caller saw.
// Errors: invalid_argument, conflict, overloaded if there are too many.
func (c *Control) PutApplication(ctx context.Context, a Application) (Application, error) {
	if err := a.Validate(); err != nil {
		return a, err
	}
	seen := a.Revision
	a.Revision++
	text, err := json.Marshal(a)
	if err != nil {
		return a, err
	}
	d, arg, more := c.decision(ctx)
	r := script.ReadReply(c.runner.Call(
		ctx, scripts["application_put"], slices.Concat([]string{c.k.applications()}, more), []string{
			a.Name, string(text), number(seen), a.Tenant, number(MaxTenantApplications), number(MaxApplications), arg,
		},
	))
	code := r.Number()
	switch {
	case r.Err != nil:
	case code == codeUndecided:
		if why := r.Text(); r.Err == nil {
			return a, undecided(d.ID, why)
		}
	case code == codeDiffer:
		return a, &freeslot.Error{Code: freeslot.CodeConflict, Field: "revision", Message: fmt.Sprintf(
			"application %s is at revision %d, and the change was made from revision %d", a.Name, r.Number(), seen)}
	case code == codeFull:
		return a, &freeslot.Error{Code: freeslot.CodeOverloaded, Message: fmt.Sprintf(
			"there are %d applications, of at most %d for a tenant and %d together", r.Number(), MaxTenantApplications,
			MaxApplications)}
	default:
		d.carriedOut()
		return a, nil
	}
	return a, fmt.Errorf("write application %s: %w", a.Name, noMemory(r.Err))
}

// DeleteApplication forgets an application. Lists that it owns keep their owner.
func (c *Control) DeleteApplication(ctx context.Context, name string) error {
	removed, err := c.runner.Do(
		ctx, "applications", c.runner.B().Hdel().Key(c.k.applications()).Field(name).Build(),
	).AsInt64()
	switch {
	case err != nil:
		return fmt.Errorf("delete application %s: %w", name, err)
	case removed == 0:
		return NoApplication(name)
	}
	return nil
}

// NoApplication returns the error that there is no such application.
func NoApplication(name string) error {
	return &freeslot.Error{Code: freeslot.CodeNotFound, Message: fmt.Sprintf("there is no application %.80q", name)}
}

// May is what a grant allows with a list.
type May string

// What grants allow.
const (
	MayEdit   May = "edit"   // change entries and settings, and import
	MayQuery  May = "query"  // ask for entries
	MaySwitch May = "switch" // switch, roll back and delete
)

// Mays are all that a grant can allow.
var Mays = []May{MayEdit, MayQuery, MaySwitch}

// ListOwner is the application that owns a list, and its tenant; the zero value means none.
type ListOwner struct{ Application, Tenant string }

// Grant allows the operator's token of this name, or the tenant-operator's of this tenant and name
// with a "/" between, something with a list, and replaces an earlier grant; without anything it
// revokes that.
func (c *Control) Grant(ctx context.Context, list, name string, may []May) (Head, error) {
	var found freeslot.FieldErrors
	line(&found, "name", name)
	tenant, token, slash := strings.Cut(name, "/")
	if name == "" || slash && (token == "" || freeslot.ValidateName("tenant", tenant) != nil) {
		found.Addf("name", "is %.64q, expected the name of a token, for a tenant-operator's as tenant/name", name)
	}
	for i, m := range may {
		if !slices.Contains(Mays, m) {
			found.Addf(fmt.Sprintf("may[%d]", i), "is %.20q, expected edit, query or switch", m)
		}
	}
	if err := found.Err(); err != nil {
		return Head{}, err
	}
	return c.step(ctx, "a grant", list, func(h *Head) (*change, error) {
		if !h.exists() {
			return nil, notFound(list)
		}
		grants := make(map[string][]May, len(h.Grants)+1)
		for to, is := range h.Grants {
			grants[to] = is
		}
		if grants[name] = may; len(may) == 0 {
			delete(grants, name)
		}
		if len(grants) > MaxGrants {
			return nil, &freeslot.Error{
				Code: freeslot.CodeOverloaded, Message: fmt.Sprintf("list %s has %d grants, which is the most", list, MaxGrants),
			}
		}
		text, err := json.Marshal(grants)
		return &change{fields: []string{"grants", string(text)}}, err
	})
}

// Own makes an application the owner of a list; the zero value takes the owner away.
func (c *Control) Own(ctx context.Context, list string, o ListOwner) (Head, error) {
	return c.step(ctx, "an owner", list, func(h *Head) (*change, error) {
		if !h.exists() {
			return nil, notFound(list)
		}
		return &change{fields: o.fields()}, nil
	})
}

func (o ListOwner) fields() []string {
	return []string{"owner", o.Application, "owner_tenant", o.Tenant}
}
