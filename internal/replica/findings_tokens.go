package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/plural"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// expiring is a token: its owner, for people, and its end; zero for never.
type expiring struct {
	owner string
	end   time.Time
}

// listed returns a function that returns the tokens of callers and nodes, except signed ones.
func listed(auth *identity.Authenticator, door *door) func() []expiring {
	return func() (all []expiring) {
		callers, _ := auth.Tokens()
		for i := range callers {
			t := &callers[i]
			all = append(all, expiring{t.Name + " of tenant " + t.Tenant, t.Expires})
		}
		if door == nil {
			return all
		}
		for _, t := range door.tokens.All() {
			all = append(all, expiring{t.Name + " of " + api.GatewaySource, t.Expires})
		}
		return all
	}
}

// runOut returns the finding about owners whose tokens all end within limit, or have ended. An
// owner with a newer token beside the old one is in the middle of a change, and is fine.
func runOut(tokens []expiring, now time.Time, limit time.Duration) []finding.Finding {
	last := make(map[string]time.Time)
	for _, t := range tokens {
		was, known := last[t.owner]
		switch {
		case !known, t.end.IsZero(), !was.IsZero() && t.end.After(was):
			last[t.owner] = t.end
		}
	}
	var ends []expiring
	for owner, end := range last {
		if !end.IsZero() && end.Sub(now) <= limit {
			ends = append(ends, expiring{owner, end})
		}
	}
	if len(ends) == 0 {
		return nil
	}
	slices.SortFunc(ends, func(a, b expiring) int { return cmp.Or(a.end.Compare(b.end), cmp.Compare(a.owner, b.owner)) })
	f := finding.Finding{
		ID: "tokens.expiring", Severity: finding.Warning, SinceMS: ends[0].end.Add(-limit).UnixMilli(),
		Text: plural.Of(len(ends), "owner of tokens has", "owners of tokens have") + " none that lasts for another " +
			config.FormatDuration(limit),
		Next: "schedctl tokens new, or for a node schedctl nodes token, makes a new one: add its line beside the old one; " +
			"remove the lines of owners that are gone",
	}
	for _, t := range ends[:min(len(ends), finding.MaxNames)] {
		f.Names = append(f.Names, t.owner+", until "+t.end.UTC().Format(time.RFC3339))
	}
	return []finding.Finding{f}
}
