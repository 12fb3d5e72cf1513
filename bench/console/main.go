// Command console measures what the console promises: how fast its page loads, draws and filters in
// a real Chromium, and what viewers cost the replica, Redis and the jobs.
//
//	go run -C bench ./console                  everything, into results/console.json and RESULTS.md
//	go run -C bench ./console -parts load,page only these; other figures stay
//	go run -C bench ./console -short           all in a minute; shows that it works, not how fast
//
// It ends with status 1 if a target is missed.
package main

import (
	"context"
	"os"

	"github.com/freeslot/freeslot/bench/tool"
)

// inBrowser is how many parts need Chromium.
const inBrowser = 4

func main() {
	t, stop := newTool()
	code := t.Main()
	if err := stop(); err != nil {
		_, _ = os.Stderr.WriteString("console: " + err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

// newTool also returns what ends the processes that the parts share.
func newTool() (t *tool.Tool, stop func() error) {
	var shared *bed
	part := func(name, about string, run func(context.Context, *tool.Bench, *bed)) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) {
			if shared == nil {
				shared = openBed(ctx, b)
			}
			shared.note(ctx, b)
			run(ctx, b, shared)
		}}
	}
	t = &tool.Tool{
		Name: "console", Folder: "console", About: "Measures the console in Chromium, and what its viewers cost.", Strict: true,
		Parts: []tool.Part{
			part("viewers", "what viewers cost the replica and Redis, with 10,000 nodes", runViewers),
			part("load", "the first load, and navigation to the overview with a cold cache", runLoad),
			part("nodes", "filter and sort of 10,000 nodes", runNodes),
			part("map", "the heat map of 10,000 nodes that all change twice a second", runMap),
			part("heap", "the page's heap after 7,200 updates", runHeap),
			part("lists", "the first page of jobs with 1,000,000 ended, and why a job waits among 10,000 nodes", runLists),
			{Name: "history", About: "what the history costs while no one looks", Run: runHistory},
			{Name: "assign", About: "time to assign with and without viewers", Run: runAssign},
		},
	}
	return t, func() error {
		if shared == nil {
			return nil
		}
		return shared.close()
	}
}
