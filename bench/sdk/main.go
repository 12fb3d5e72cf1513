// Command sdk measures the SDKs of other languages: the Python worker and client beside those in Go
// and beside Celery, the TypeScript client beside BullMQ, a node whose handler holds the
// interpreter, and the memory of an idle Python worker.
//
//	go run -C bench ./sdk                       everything, into results/sdk.json and RESULTS.md
//	go run -C bench ./sdk -parts worker,client  only these; other figures stay in the file
//	go run -C bench ./sdk -short                in a minute or two; shows that it works
//
// Systems that are compared take turns within each round, and figures are medians of the rounds.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/freeslot/freeslot/bench/tool"
)

func main() { os.Exit(newTool().Main()) }

func newTool() *tool.Tool {
	l := tool.Length{Rounds: 5, Window: 4 * time.Second}
	part := func(name, about string, run func(context.Context, *tool.Bench, tool.Length)) tool.Part {
		return tool.Part{Name: name, About: about, Run: func(ctx context.Context, b *tool.Bench) {
			run(ctx, b, tool.Sized(b, l, tool.Length{Rounds: 1, Window: time.Second}))
		}}
	}
	return &tool.Tool{
		Name: "sdk", Folder: "sdk", About: "Measures the SDKs of other languages beside Go's and beside their peers.",
		Parts: []tool.Part{
			part("worker", "jobs that do nothing: Python workers beside Go's by gateway, and Celery's", runWorker),
			part("client", "one job at a time: the Python client beside Go's", runClient),
			part("interpreter", "a node whose handler holds the interpreter", runInterpreter),
			part("typescript", "jobs of the TypeScript client in batch frames, beside BullMQ's", runTypeScript),
			part("memory", "an idle Python worker above a bare interpreter", runMemory),
		},
		Flags: func(f *flag.FlagSet) { l.Flags(f, "system") }, Check: l.Check,
	}
}
