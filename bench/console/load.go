package main

import (
	"context"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// liveAt notes when the page has drawn live figures, in milliseconds since its navigation began.
const liveAt = `new MutationObserver((_, o) => {
	const d = document.documentElement.dataset;
	if (!d.seqOverview || !d.seqHistory) return;
	window.liveAt = performance.now();
	o.disconnect();
}).observe(document, {subtree: true, attributes: true, attributeFilter: ["data-seq"]});`

func runLoad(ctx context.Context, b *tool.Bench, d *bed) {
	rounds := tool.Sized(b, 20, 2)
	chromium := openBrowser(ctx, b)
	defer chromium.stop()
	b.Say("A running headless Chromium without a GPU opens the overview of a replica with %s nodes, %d times, each time with an "+
		"empty cache. It ends when the page has drawn its first push of figures and of the history, by the page's own clock. Bytes "+
		"are as they came over the network, of all requests until then and of those half a second later.", measure.Thousands(d.nodes), rounds)
	var times, sizes, requests []float64
	for range rounds {
		func() {
			p := chromium.tab(liveAt)
			defer tool.End(p.end)
			p.open(d.url("/console/"))
			p.until("window.liveAt > 0")
			times = append(times, eval[float64](p, "window.liveAt"))
			tool.Sleep(ctx, pageSettle)
			n, bytes := p.traffic()
			sizes, requests = append(sizes, bytes/1000), append(requests, float64(n))
		}()
	}
	t := result.NewTable("Navigation, cold cache", "p50 [ms]", "p95 [ms]", "most [ms]")
	t.Add("to the overview with live figures", measure.Median(times), measure.Quantile(times, 0.95), measure.Quantile(times, 1))
	b.Result.Tables = []result.Table{t}
	b.Target("first load over the network, KB", result.Number, result.AtMost, 150, measure.Quantile(sizes, 1))
	b.Target("first load, requests", result.Number, result.AtMost, 6, measure.Quantile(requests, 1))
	b.Target("navigation to the overview with live figures, cold cache, p95", result.Milliseconds, result.AtMost, 1000,
		measure.Quantile(times, 0.95))
}
