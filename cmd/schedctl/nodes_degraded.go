package main

import (
	"fmt"
	"time"
)

// warnDegraded says that a replica shows the last state that it knows of, beside the
// output: tables are read by programs, too.
func (a *app) warnDegraded(nodes ...node) {
	count, oldest := 0, int64(0)
	for _, n := range nodes {
		if n.Degraded {
			count, oldest = count+1, max(oldest, n.AgeMS)
		}
	}
	if count > 0 {
		_, _ = fmt.Fprintf(a.err, "schedctl: degraded: Redis does not answer; %d of %d nodes are as the replica knew them up to %s ago\n", count, len(nodes), age(oldest))
	}
}

func age(ms int64) time.Duration {
	return (time.Duration(ms) * time.Millisecond).Round(time.Second / 10)
}
