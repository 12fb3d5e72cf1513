package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/growthbook/growthbook-golang"
	"github.com/open-feature/go-sdk/openfeature"
	"github.com/open-feature/go-sdk/openfeature/memprovider"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/result"
	"github.com/freeslot/freeslot/bench/tool"
	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/namelist/chain"
	"github.com/freeslot/freeslot/internal/namelist/filter"
	"github.com/freeslot/freeslot/namelist"
	provider "github.com/freeslot/freeslot/namelist/openfeature"
)

const (
	segmentList = "segment"
	segmentIDs  = 10_000
	chainAsks   = 200_000
	growthAsks  = 2000 // it reads the whole segment for each
	flagName    = "flag"
	canaryBelow = 0.01 // the share of the percentage
)

// The rules of the chains: a subject that no rule decides passes them all.
const (
	inRule         = `{"name": "testers", "kind": "in", "list": "segment", "unknown": "stop", "outcome": "allow"}`
	percentRule    = `{"name": "canary", "kind": "percentage", "percent": 1, "unknown": "stop", "outcome": "allow"}`
	windowRule     = `{"name": "season", "kind": "window", "from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z", "outcome": "allow"}`
	expressionRule = `{"name": "home", "kind": "expression", "expression": "country == \"DK\"", "unknown": "stop", "outcome": "allow"}`
)

func runChain(ctx context.Context, b *tool.Bench, d *bed) {
	strange := tool.Sized(b, chainAsks, 5000)
	b.Say("One goroutine decides for %s strangers, of whom each is asked once in a pass, in random order, and of whom no rule "+
		"decides more than 1 %%: the median of %d passes, in turns, by the processor time of its thread, without that of a loop "+
		"which only reads the ids. The segment has %s ids.", thousands(strange), turns*d.rounds, thousands(segmentIDs))
	b.Say("All flags have the same three rules: the segment, 1 %% by the hash of the id, and `country == \"DK\"`, which is false. "+
		"OpenFeature's in-memory provider gets them as a function in Go, with a map of the segment. GrowthBook's SDK gets them as "+
		"force rules, with the segment as a saved group; each subject is a client of its own, as its documentation has it, and %s are asked. "+
		"Segments of Unleash end at 1,000 values.", thousands(min(strange, growthAsks)))
	d.segment(ctx, b)
	put := func(name string, rules ...string) {
		d.putChain(ctx, fmt.Sprintf(`{"name": %q, "attributes": {"country": "string"}, "rules": [%s], "default": "deny"}`,
			name, strings.Join(rules, ", ")), 0)
	}
	put("plain", inRule, percentRule, windowRule)
	put(flagName, inRule, percentRule, expressionRule)
	c, stop := openClient(d.control.URL())
	defer tool.End(stop)
	plain, flag := c.Chain("plain"), c.Chain(flagName)
	ready, cancel := context.WithTimeout(ctx, seenLimit)
	defer cancel()
	tool.Check(plain.WaitReady(ready))
	tool.Check(flag.WaitReady(ready))
	d.compareChains(ctx, b, c, plain, flag, idsOf(shuffled(segmentIDs, strange)))
	d.followChain(ctx, b)
}

// segment makes the list, unless a part before has done so.
func (d *bed) segment(ctx context.Context, b *tool.Bench) {
	if d.segmented {
		return
	}
	d.segmented = true
	if len(d.replicas) == 0 {
		d.replica(ctx)
	}
	b.Progress("importing the segment")
	d.create(ctx, segmentList, filter.Fuse)
	v := d.load(ctx, d.replicas[0], segmentList, segmentIDs, false).version
	d.switchTo(ctx, segmentList, v.Number, 0)
}

// putChain writes a version of a chain.
func (d *bed) putChain(ctx context.Context, document string, seen int64) (version int64) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	parsed, _, err := chain.Parse([]byte(document), nil)
	tool.Check(err)
	return tool.Must(d.lists.PutChain(ctx, lists.ChainPut{
		Chain: parsed.Name, Seen: seen, Document: string(chain.Encode(parsed)), Lists: parsed.Lists(), By: by,
	}))
}

func (d *bed) compareChains(
	ctx context.Context, b *tool.Bench, c *namelist.Client, plain, flag *namelist.Chain, all []string,
) {
	list := c.List(segmentList)
	var ids []string
	for _, id := range all {
		if list.Peek(id).Verdict == namelist.No && chain.Bucket("plain", id) >= chain.Buckets*canaryBelow {
			ids = append(ids, id)
		}
	}
	idle := idleLoop(ids)
	attributes := map[string]any{"country": "DE"}
	allowed := 0
	decide := func(of *namelist.Chain) *loop {
		return &loop{n: len(ids), idle: idle, do: func(i int) {
			if of.Evaluate(ctx, namelist.Subject{Key: ids[i], Attributes: attributes}).Outcome == namelist.OutcomeAllow {
				allowed++
			}
		}}
	}
	asFlag := func(domain string, p openfeature.FeatureProvider) *loop {
		tool.Check(openfeature.SetNamedProviderWithContextAndWait(ctx, domain, p))
		client := openfeature.NewClient(domain)
		return &loop{n: len(ids), idle: idle, do: func(i int) {
			if client.Boolean(ctx, flagName, true, openfeature.NewEvaluationContext(ids[i], attributes)) {
				allowed++
			}
		}}
	}
	defer openfeature.Shutdown()
	one, two := decide(plain), decide(flag)
	ours, memory := asFlag("ours", provider.New(c, flagName)), asFlag("memory", inMemory())
	growth := growthBook(ctx, ids[:min(len(ids), growthAsks)], &allowed)
	inTurns(d.rounds, idle, one, two, ours, memory, growth, growth.idle)
	if share := float64(allowed) / float64(turns*d.rounds*(4*len(ids)+growth.n)); share > 2*canaryBelow {
		tool.Check(fmt.Errorf("%.1f %% of the decisions allow, expected about 1 %%", 100*share))
	}
	t := result.NewTable("Three rules", "a decision [ns]", "allocations")
	for _, row := range []struct {
		name string
		of   *loop
	}{
		{"freeslot, no expression", one},
		{"freeslot, one expression", two},
		{"freeslot by OpenFeature", ours},
		{"OpenFeature's in-memory provider", memory},
		{"GrowthBook", growth},
	} {
		t.Add(row.name, row.of.each(), row.of.allocations())
	}
	ns := result.Nanoseconds
	b.Target("3 rules, no expression", ns, result.AtMost, 300, one.each())
	b.Target("3 rules, one expression", ns, result.AtMost, 1000, two.each())
	b.Target("3 rules, no expression: allocations", result.Number, result.Exactly, 0, one.allocations())
	b.Target("3 rules, one expression: allocations", result.Number, result.AtMost, 2, two.allocations())
	b.Target("beside OpenFeature's in-memory provider", ns, result.AtMost, measure.FourFigures(memory.each()), two.each())
	through := measure.Median(ratios(ours.ns, memory.ns))
	b.Target("by our provider of OpenFeature / by its in-memory provider", result.Times, result.AtMost, 1, through)
	b.Target("beside GrowthBook", ns, result.AtMost, measure.FourFigures(growth.each()), two.each())
	b.Result.Tables = append(b.Result.Tables, t)
}

// inMemory is OpenFeature's provider with the rules as a function.
func inMemory() openfeature.FeatureProvider {
	segment := make(map[string]struct{}, segmentIDs)
	for i := range segmentIDs {
		segment[idOf(i)] = struct{}{}
	}
	rules := func(_ memprovider.InMemoryFlag, of openfeature.FlattenedContext) (any, openfeature.ProviderResolutionDetail) {
		key, _ := of[openfeature.TargetingKey].(string)
		if _, in := segment[key]; in || chain.Bucket(flagName, key) < chain.Buckets*canaryBelow || of["country"] == "DK" {
			return true, openfeature.ProviderResolutionDetail{Reason: openfeature.TargetingMatchReason, Variant: "on"}
		}
		return false, openfeature.ProviderResolutionDetail{Reason: openfeature.DefaultReason, Variant: "off"}
	}
	return memprovider.NewInMemoryProvider(map[string]memprovider.InMemoryFlag{flagName: {
		Key: flagName, State: memprovider.Enabled, DefaultVariant: "off", Variants: map[string]any{"on": true, "off": false},
		ContextEvaluator: &rules,
	}})
}

// growthBook is GrowthBook's client with the rules as a feature.
func growthBook(ctx context.Context, ids []string, allowed *int) *loop {
	segment := make([]string, segmentIDs)
	for i := range segment {
		segment[i] = idOf(i)
	}
	payload := tool.Must(json.Marshal(map[string]any{
		"savedGroups": map[string]any{segmentList: segment},
		"features": map[string]any{flagName: map[string]any{"defaultValue": false, "rules": []any{
			map[string]any{"condition": map[string]any{"id": map[string]any{"$inGroup": segmentList}}, "force": true},
			map[string]any{"coverage": canaryBelow, "hashAttribute": "id", "force": true},
			map[string]any{"condition": map[string]any{"country": "DK"}, "force": true},
		}}},
	}))
	client := tool.Must(growthbook.NewClient(ctx))
	tool.Check(client.UpdateFromApiResponseJSON(string(payload)))
	member := tool.Must(client.WithAttributes(growthbook.Attributes{"id": segment[0]}))
	if !member.EvalFeature(ctx, flagName).On {
		tool.Check(errors.New("GrowthBook denies a member of the segment"))
	}
	return &loop{n: len(ids), idle: idleLoop(ids), do: func(i int) {
		child, err := client.WithAttributes(growthbook.Attributes{"id": ids[i], "country": "DE"})
		if err != nil || child.EvalFeature(ctx, flagName).On {
			*allowed++
		}
	}}
}

// followChain times new versions of a chain to the last of many clients.
func (d *bed) followChain(ctx context.Context, b *tool.Bench) {
	clients := tool.Sized(b, followers, 8)
	b.Say("%d clients in %d processes follow a chain over the segment. It gets %d versions, each timed from before the call "+
		"that writes it until the last client's `Evaluate` has answered from it.", clients, followProcesses, d.edits)
	document := `{"name": "followed", "rules": [` + inRule + `], "default": "%s"}`
	seen := d.putChain(ctx, fmt.Sprintf(document, chain.Deny), 0)
	var children tool.Children
	defer tool.End(children.End)
	for range followProcesses {
		children = append(children, startClients(ctx, d, clients/followProcesses))
	}
	tool.AskAll[answer](ctx, children, 0, request{Do: "follow-chain", List: followedList})
	var times []float64
	for i := range d.edits {
		at := time.Now()
		seen = d.putChain(ctx, fmt.Sprintf(document, []chain.Outcome{chain.Allow, chain.Deny}[i%2]), seen)
		times = append(times, lastOf(ctx, children, at, request{Do: "seen", Version: seen}))
		tool.Sleep(ctx, editEvery)
	}
	p99 := measure.Quantile(times, 0.99)
	t := result.NewTable(fmt.Sprintf("To the last of %d clients", clients), "p50 [ms]", "p99 [ms]", "longest [ms]", "times")
	t.Add("a version of a chain", measure.Median(times), p99, measure.Quantile(times, 1), len(times))
	what := fmt.Sprintf("a version of a chain to the last of %d clients, p99", clients)
	b.Target(what, result.Milliseconds, result.AtMost, 100, p99)
	b.Result.Tables = append(b.Result.Tables, t)
}
