package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
)

// fleetPeriod is the time between two frames of the topic fleet.
const fleetPeriod = time.Second / 2

func runMap(ctx context.Context, b *tool.Bench, d *bed) {
	pushes, warmUp, moving := tool.Sized(b, 120, 4), tool.Sized(b, 10, 1), tool.Sized(b, 8*time.Second, time.Second)
	chromium := openBrowser(ctx, b)
	defer chromium.stop()
	b.Say("The map of %s nodes, all of which change their slots and figures in each of %d frames, one every %s, after %d that do not "+
		"count, as a program between page and replica plays them. Work is all tasks of the page's main thread, by Chromium's trace: of a frame, all "+
		"from its arrival until the next one's. Without a GPU.", measure.Thousands(d.nodes), pushes, fleetPeriod, warmUp)
	b.Say("Moving: for %s the page scrolls the enlarged map in each animation frame and changes its size twice a second, while "+
		"all nodes go on to change.", moving)
	play := openPlayer(ctx, d)
	defer tool.End(play.close)
	p := chromium.tab("")
	defer tool.End(p.end)
	p.open("http://" + play.address + "/console/#/fleet")
	conn := play.page(ctx)
	send(ctx, conn, map[string]any{"hello": d.hello(ctx)})
	play.wanted(ctx, "fleet")
	send(ctx, conn, topicFrame{"nodes", 1, time.Now().UnixMilli(), map[string]any{"base": 0, "revision": 1, "reload": true}})
	f := &frames{nodes: d.nodes}
	f.send(ctx, conn)
	p.until(`!!document.querySelector(".map canvas")`)
	tool.Sleep(ctx, 2*pageSettle)
	f.run(ctx, conn, warmUp)

	still := p.trace(ctx, func() { f.run(ctx, conn, pushes) })
	work := make([]float64, 0, pushes)
	for i, at := range still.arrivals {
		end := math.Inf(1)
		if i+1 < len(still.arrivals) {
			end = still.arrivals[i+1]
		}
		work = append(work, still.between(at, end))
	}
	var rate float64
	moved := p.trace(ctx, func() {
		done := make(chan error, 1)
		go func() { done <- tool.Try(func() { f.run(ctx, conn, int(moving/fleetPeriod)) }) }()
		rate = eval[float64](p, fmt.Sprintf(moveMap, moving.Milliseconds()))
		tool.Check(<-done)
	})
	t := result.NewTable(measure.Thousands(d.nodes)+" nodes", "p50 [ms]", "p99 [ms]", "longest task [ms]", "frames [/s]")
	t.Add("a frame in which all change", measure.Median(work), measure.Quantile(work, 0.99), still.longest(), nil)
	t.Add("moved and enlarged meanwhile", nil, nil, moved.longest(), rate)
	b.Result.Tables = []result.Table{t}
	b.Target("map of 10,000 nodes that all change: script and drawing of a frame, p99", result.Milliseconds, result.AtMost, 16,
		measure.Quantile(work, 0.99))
	b.Target("map that is moved and enlarged: frames a second", result.Number, result.AtLeast, 60, math.Round(rate))
	b.Target("map that is moved and enlarged: the longest task", result.Milliseconds, result.AtMost, 50, moved.longest())
}

// moveMap moves the map for so many milliseconds, and returns the animation frames a second.
const moveMap = `new Promise((done) => {
	const map = document.querySelector(".map");
	const size = (name) => [...document.querySelectorAll("button")].find((b) => b.ariaLabel === name).click();
	const begin = performance.now();
	let frames = 0, steps = 0;
	const move = () => {
		const at = performance.now() - begin;
		if (at > %d) return done(1000 * frames / at);
		frames++;
		map.scrollTop = (Math.sin(at / 300) + 1) / 2 * (map.scrollHeight - map.clientHeight);
		map.scrollLeft = (Math.cos(at / 500) + 1) / 2 * (map.scrollWidth - map.clientWidth);
		if (at > 500 * steps) size(steps++ %% 4 < 2 ? "Zoom in" : "Zoom out");
		requestAnimationFrame(move);
	};
	requestAnimationFrame(move);
})`

// frames makes frames of the topic fleet. docs/console.md has their layout.
type frames struct {
	nodes int
	seq   uint64
}

func (f *frames) send(ctx context.Context, conn *websocket.Conn) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	tool.Check(conn.Write(ctx, websocket.MessageBinary, f.next()))
}

// run sends frames at their pace.
func (f *frames) run(ctx context.Context, conn *websocket.Conn, count int) {
	begin := time.Now()
	for i := range count {
		tool.Check(measure.SleepUntil(ctx, begin.Add(time.Duration(i)*fleetPeriod)))
		f.send(ctx, conn)
	}
	tool.Check(measure.SleepUntil(ctx, begin.Add(time.Duration(count)*fleetPeriod)))
}

// next is a frame in which all nodes change. The first one names them.
func (f *frames) next() []byte {
	const version, anew, online, named, ageUnit = 1, 1, 1, 0x80, 4000
	first := f.seq == 0
	f.seq++
	text := []byte{version, 0}
	state := byte(online)
	if first {
		text[1], state = anew, online|named
	}
	for _, n := range []uint64{f.seq, uint64(time.Now().UnixMilli()), f.seq - 1, f.seq} {
		text = binary.LittleEndian.AppendUint64(text, n)
	}
	for _, n := range []uint32{ageUnit, 0, uint32(f.nodes)} {
		text = binary.LittleEndian.AppendUint32(text, n)
	}
	for i := range f.nodes {
		text = append(text, 0, state) // no place is left out
		text = binary.LittleEndian.AppendUint16(text, uint16(rand.N(9)))
		text = binary.LittleEndian.AppendUint16(text, 8)
		text = append(text, byte(rand.N(101)), byte(rand.N(101)), byte(rand.N(101)), byte(rand.N(8)))
		if first {
			text = append(text, 0, byte(len(nodeID(i))))
			text = append(text, nodeID(i)...)
		}
	}
	return text
}
