package main

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// pageSettle is for what a page does after it has drawn.
const pageSettle = 500 * time.Millisecond

// timed returns how long the page takes from the beginning of an act until the frame is painted
// that shows its effect, in milliseconds: a table in another order, or of other rows.
const timed = `(act) => new Promise((done, fail) => {
	const state = () => [...document.querySelectorAll("[aria-sort], .table .foot")].map((e) => e.ariaSort + e.innerText).join();
	const before = state();
	requestAnimationFrame(() => setTimeout(() => {
		const begin = performance.now();
		act();
		const look = () => {
			if (performance.now() - begin > 10_000) return fail("nothing changed: " + before);
			if (state() === before) return requestAnimationFrame(look);
			const painted = new MessageChannel();
			painted.port1.onmessage = () => done(performance.now() - begin);
			painted.port2.postMessage(0);
		};
		requestAnimationFrame(look);
	}));
})`

func runNodes(ctx context.Context, b *tool.Bench, d *bed) {
	rounds := tool.Sized(b, 20, 2)
	chromium := openBrowser(ctx, b)
	defer chromium.stop()
	b.Say("The view of %s nodes: each of its columns is sorted by a click on its heading, and the name filtered by typing a part "+
		"of it, %d times in turns. From the event until the frame with its effect has been painted, by the page's clock, which "+
		"includes the wait for the next frame.", measure.Thousands(d.nodes), rounds)
	p := chromium.tab("")
	defer tool.End(p.end)
	p.open(d.url("/console/#/nodes"))
	p.until(fmt.Sprintf(`document.body.innerText.replaceAll(/[,\s]/g, "").includes("%dof%dnodes")`, d.nodes, d.nodes))
	acts := []*act{
		{name: "sort by name", script: sortBy("Node")},
		{name: "sort by slots used", script: sortBy("Slots used")},
		{name: "sort by heartbeat", script: sortBy("Heartbeat")},
		{name: "filter by a part of the name", prepare: typeName, script: `() =>
			nameField().dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}))`},
	}
	tool.InTurns(b, rounds, acts, func(a *act, _ int) {
		if a.prepare != "" {
			eval[bool](p, a.prepare)
			tool.Sleep(ctx, pageSettle/5)
		}
		a.ms = append(a.ms, eval[float64](p, "("+timed+")("+a.script+")"))
		tool.Sleep(ctx, pageSettle/5)
	})
	t := result.NewTable(measure.Thousands(d.nodes)+" nodes", "p50 [ms]", "p95 [ms]", "most [ms]")
	worst := 0.0
	for _, a := range acts {
		t.Add(a.name, measure.Median(a.ms), measure.Quantile(a.ms, 0.95), measure.Quantile(a.ms, 1))
		worst = max(worst, measure.Quantile(a.ms, 0.95))
	}
	b.Result.Tables = []result.Table{t}
	b.Target("filter and sort of 10,000 nodes, p95 of the slowest", result.Milliseconds, result.AtMost, 50, worst)
}

// act is something that a user does, with how long it took.
type act struct {
	name, script string
	// prepare comes before, and does not count.
	prepare string
	ms      []float64
}

// typeName types a part of a name, or clears it.
const typeName = `window.nameField = () => [...document.querySelectorAll("input")].find((i) => i.placeholder === "a part of it");
	(() => {
		const field = nameField();
		field.value = field.value ? "" : "node-001";
		field.dispatchEvent(new Event("input", {bubbles: true}));
		return true;
	})()`

func sortBy(column string) string {
	return fmt.Sprintf(`() => [...document.querySelectorAll("[role=columnheader] button, th button")]
		.find((h) => h.innerText.trim().startsWith(%q)).click()`, column)
}
