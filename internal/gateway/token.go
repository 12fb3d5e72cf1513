package gateway

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/tokenfile"
)

// Token is one line of the tokens file. In names and limits, * stands for any text.
type Token struct {
	// Name is the owner. Lines with the same name have one owner, so that a secret can be changed
	// while its node runs.
	Name    string
	Digest  [sha256.Size]byte // of the secret
	Nodes   []string
	Expires time.Time // zero: never
	// Certificate is the name, or a pattern of it, in the certificate that must come with the token;
	// empty: none must.
	Certificate string
	// Limits; nil and 0 allow all. Capabilities are languages of every stage, and features.
	Services, Pools, Capabilities []string
	Labels                        map[string][]string
	Slots                         int
}

// Names reports whether the token may be used for this node.
func (t *Token) Names(node string) bool { return tokenfile.MatchesAny(t.Nodes, node) }

// Check holds a profile against the limits. It returns permission_denied with the field, or nil.
func (t *Token) Check(profile *freeslot.Node) *freeslot.Error {
	for _, service := range profile.Services {
		if err := t.allowed("profile.installed_services", service.Name, t.Services); err != nil {
			return err
		}
	}
	for _, pool := range profile.Pools {
		if err := t.allowed("profile.pool_ids", pool, t.Pools); err != nil {
			return err
		}
	}
	if err := t.checkCapabilities(profile); err != nil {
		return err
	}
	if err := t.checkLabels(profile.Labels); err != nil {
		return err
	}
	if most := t.slots(); profile.MaxConcurrency > most {
		return t.denied(
			"profile.max_concurrency", "is %d, and the token %s allows at most %d", profile.MaxConcurrency, t.Name, most,
		)
	}
	return nil
}

// limited reports whether Check can refuse a profile that a session could carry.
func (t *Token) limited() bool {
	return t.Services != nil || t.Pools != nil || t.Capabilities != nil || t.Labels != nil || t.Slots != 0
}

// sameLimits reports whether Check refuses the same by both lines.
func (t *Token) sameLimits(other *Token) bool {
	same := func(a, b []string) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
	return t.Slots == other.Slots && same(t.Services, other.Services) && same(t.Pools, other.Pools) &&
		same(t.Capabilities, other.Capabilities) &&
		(t.Labels == nil) == (other.Labels == nil) && maps.EqualFunc(t.Labels, other.Labels, same)
}

// slots returns the token's limit of slots, at most what a session can carry.
func (t *Token) slots() int {
	if t.Slots == 0 {
		return frame.MaxSlots
	}
	return min(t.Slots, frame.MaxSlots)
}

func (t *Token) checkCapabilities(profile *freeslot.Node) *freeslot.Error {
	if t.Capabilities == nil {
		return nil
	}
	for _, stage := range []struct {
		field string
		tags  []string
	}{
		{"asr_languages", profile.Languages.ASR},
		{"tts_languages", profile.Languages.TTS},
		{"semantic_languages", profile.Languages.Semantic},
	} {
		for _, tag := range stage.tags {
			// Language tags are compared without regard to case.
			if slices.ContainsFunc(
				t.Capabilities, func(p string) bool { return tokenfile.Matches(strings.ToLower(p), strings.ToLower(tag)) },
			) {
				continue
			}
			if err := t.allowed("profile.capabilities."+stage.field, tag, t.Capabilities); err != nil {
				return err
			}
		}
	}
	for _, feature := range slices.Sorted(maps.Keys(profile.Features)) {
		if !profile.Features[feature] {
			continue
		}
		if err := t.allowed("profile.features_supported", feature, t.Capabilities); err != nil {
			return err
		}
	}
	return nil
}

func (t *Token) checkLabels(labels map[string]string) *freeslot.Error {
	if t.Labels == nil {
		return nil
	}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		values, ok := t.Labels[label]
		if !ok {
			return t.denied(
				"profile.labels", "has %q, and the token %s allows %s", label, t.Name,
				strings.Join(slices.Sorted(maps.Keys(t.Labels)), ", "),
			)
		}
		if err := t.allowed("profile.labels."+label, labels[label], values); err != nil {
			return err
		}
	}
	return nil
}

func (t *Token) allowed(field, value string, patterns []string) *freeslot.Error {
	if patterns == nil || tokenfile.MatchesAny(patterns, value) {
		return nil
	}
	return t.denied(field, "has %q, and the token %s allows %s", value, t.Name, strings.Join(patterns, ", "))
}

func (t *Token) denied(field, format string, args ...any) *freeslot.Error {
	return &freeslot.Error{
		Code: freeslot.CodePermissionDenied, Field: field, Message: field + " " + fmt.Sprintf(format, args...),
	}
}

// Allows returns what a welcome says about the token.
func (t *Token) Allows() frame.Allows {
	allows := frame.Allows{
		Token: t.Name, Nodes: t.Nodes, Services: t.Services, Pools: t.Pools, Labels: t.Labels, Capabilities: t.Capabilities,
		Slots: t.Slots,
	}
	if !t.Expires.IsZero() {
		allows.Expires = t.Expires.UTC().Format(time.RFC3339)
	}
	return allows
}
