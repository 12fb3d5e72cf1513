package tokenfile

import (
	"slices"
	"strings"
)

// MatchesAny reports whether text matches one of the patterns.
func MatchesAny(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return Matches(p, text) })
}

// Matches reports whether text matches the pattern, in which * is any text.
func Matches(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	// The leftmost match of a middle part leaves the most text for the parts behind it.
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, part)
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(part):], next
	}
}
