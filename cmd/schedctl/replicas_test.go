package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestReplicas(t *testing.T) {
	t.Parallel()
	l := start(t)
	cpu := regexp.MustCompile(`"cpu": (0\.|[1-9])`)
	waittest.Until(t, "the replica to have told its figures, and of its Redis", func() bool {
		out := l.ctl(t, "replicas", "ls", "-o", "json").expect(t, exitOK).out
		return cpu.MatchString(out) && strings.Contains(out, `"role": "master"`)
	})
	l.ctl(t, "replicas", "ls").expect(t, exitOK, "REPLICA", "REDIS", "master", "yes", "ms")
}
