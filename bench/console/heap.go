package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// historyStep is the time between two points of the history, in milliseconds.
const historyStep = 2000

// helloEvery pushes tell the page's clock the time.
const helloEvery = 15

func runHeap(ctx context.Context, b *tool.Bench, d *bed) {
	updates, filled := tool.Sized(b, 7200, 60), tool.Sized(b, 450, 20)
	chromium := openBrowser(ctx, b)
	defer chromium.stop()
	b.Say("A program between page and replica plays pushes of the overview and of the history, %s of each, one as soon as the page "+
		"has drawn the one before, so that 4 hours pass in minutes. Times of points go on by 2 s each. The heap is usedSize after "+
		"HeapProfiler.collectGarbage. It is held against the heap after %d updates, when the charts' 15 minutes are full. "+
		"By snapshots of the heap what grows then is compiled code and the browser's own list of long tasks, which holds 200: no "+
		"objects of the page.",
		measure.Thousands(updates), filled)
	play := openPlayer(ctx, d)
	defer tool.End(play.close)
	p := chromium.tab("")
	defer tool.End(p.end)
	p.open("http://" + play.address + "/console/")
	conn := play.page(ctx)
	film := d.record(ctx)
	send(ctx, conn, map[string]any{"hello": film.hello})
	play.wanted(ctx, "overview")
	play.wanted(ctx, "history")
	t := result.NewTable("Updates of each topic", "heap [MB]", "nodes of the document")
	heaps := map[int]float64{}
	for i := 1; i <= updates; i++ {
		film.play(ctx, conn, p, i)
		if i == filled || i%(updates/4) == 0 {
			heaps[i] = p.heap() / 1e6
			t.Add(measure.Thousands(i), heaps[i], eval[float64](p, `document.querySelectorAll("*").length`))
			b.Progress("%d updates, %.2f MB", i, heaps[i])
		}
	}
	b.Result.Tables = []result.Table{t}
	b.Target("heap of the page after 7,200 updates, against when its charts were full", result.Times, result.AtMost, 1.1,
		heaps[updates]/heaps[filled])
	b.Note("%.2f and %.2f MB", heaps[updates], heaps[filled])
}

// heap is what the page's scripts hold, in bytes.
func (p *tab) heap() float64 {
	ask(p, heapprofiler.CollectGarbage, cdp.Empty{})
	return ask(p, runtime.GetHeapUsage, cdp.Empty{}).UsedSize
}

// drawn waits until the page has drawn the next push of the history. It names no number: Chromium
// keeps a script for each text that it has read.
const drawn = `new Promise((done) => {
	const due = window.benchDue = (window.benchDue ?? 0) + 2;
	const look = () => Number(document.documentElement.dataset.seqHistory) >= due ? done(true) : requestAnimationFrame(look);
	look();
})`

// film is pushes of a replica, whose figures go on.
type film struct {
	hello    map[string]any
	overview map[string]any
	columns  []string
	row      []*float64
	begin    int64
}

// record takes a push of each topic from the replica.
func (d *bed) record(ctx context.Context) *film {
	var snapshot struct {
		Frames []struct {
			Topic string
			Data  json.RawMessage
		}
	}
	f := &film{hello: d.hello(ctx), begin: time.Now().UnixMilli() / historyStep * historyStep}
	d.ask(ctx, "GET", "/console/snapshot?topic=overview&topic=history", "", &snapshot)
	for _, frame := range snapshot.Frames {
		switch frame.Topic {
		case "overview":
			tool.Check(json.Unmarshal(frame.Data, &f.overview))
		case "history":
			var table struct {
				Columns []string
				Rows    [][]*float64
			}
			tool.Check(json.Unmarshal(frame.Data, &table))
			if len(table.Rows) == 0 {
				tool.Check(fmt.Errorf("the replica has no history yet"))
			}
			f.columns, f.row = table.Columns, table.Rows[0]
		}
	}
	return f
}

// play sends the i-th push of both topics, and waits until the page has drawn them.
func (f *film) play(ctx context.Context, conn *websocket.Conn, p *tab, i int) {
	now := f.begin + int64(i)*historyStep
	rows := make([][]float64, 5) // the last five points, as a replica repeats them
	for k := range rows {
		rows[k] = make([]float64, len(f.columns))
		for c := range rows[k] {
			rows[k][c] = 1000 * rand.Float64()
		}
		rows[k][0] = float64(now - int64(len(rows)-1-k)*historyStep)
	}
	overview := make(map[string]any, len(f.overview))
	for name, value := range f.overview {
		overview[name] = value
	}
	overview["nodes"] = map[string]int{"online": 9000 + i%1000, "draining": i % 7, "silent": i % 11}
	if i%helloEvery == 0 { // the page's clock follows the figures
		f.hello["now_ms"] = now
		send(ctx, conn, map[string]any{"hello": f.hello})
	}
	send(ctx, conn, topicFrame{"overview", 2*i - 1, now, overview})
	send(ctx, conn, topicFrame{"history", 2 * i, now, map[string]any{
		"step_ms": historyStep, "columns": f.columns, "rows": rows,
	}})
	eval[bool](p, drawn)
}
