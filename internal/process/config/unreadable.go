package config

import (
	"errors"
	"slices"
	"strings"
)

// Unreadable reports whether err, of loading a configuration, tells of files that could not be read, and of nothing that is wrong by itself:
// the same configuration may be valid once they are there. Without its own file a configuration cannot be judged at all.
func Unreadable(err error) bool {
	var problems Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		return false
	}
	if slices.ContainsFunc(problems, func(p Problem) bool { return p.Path == "" && strings.HasPrefix(p.Message, "cannot read ") }) {
		return true
	}
	// Only its message tells such a problem from others of the same key, such as a file without a certificate. An empty
	// one is just being written.
	return !slices.ContainsFunc(problems, func(p Problem) bool {
		return !strings.HasSuffix(p.Path, "_file") || !strings.Contains(p.Message, "cannot be read: ") && !strings.Contains(p.Message, ", which is empty")
	})
}
