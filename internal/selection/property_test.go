package selection

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freeslot/freeslot"
)

// Small universes, so that fits and collisions are common.
var (
	genTag     = rapid.SampledFrom([]string{"de", "DE-at", "de-AT-x-a-b", "de-x-a", "en", "en_GB", "zh", "zh-Hant", "zh-hant-TW", "zh-u-co-pinyin"})
	genService = rapid.SampledFrom([]string{"asr", "tts", "ocr"})
	genPoolID  = rapid.SampledFrom([]string{"p", "q", "r", "s"})
	genLabels  = rapid.MapOfN(rapid.SampledFrom([]string{"zone", "gpu"}), rapid.SampledFrom([]string{"a", "b"}), 0, 2)
)

func few[T any](t *rapid.T, g *rapid.Generator[T], limit int, label string) []T {
	return rapid.SliceOfN(g, 0, limit).Draw(t, label)
}

func genNode(t *rapid.T, id string) *freeslot.Node {
	return &freeslot.Node{
		ID:             id,
		MaxConcurrency: rapid.IntRange(1, 4).Draw(t, "max"),
		Services:       services(few(t, genService, 3, "services")...),
		Languages: freeslot.Languages{
			ASR: few(t, genTag, 3, "asr"), TTS: few(t, genTag, 3, "tts"), Semantic: few(t, genTag, 3, "semantic"),
		},
		Pools:  few(t, genPoolID, 2, "node pools"),
		Labels: genLabels.Draw(t, "node labels"),
	}
}

func genPools(t *rapid.T) Pools {
	var pools Pools
	for _, id := range rapid.SliceOfNDistinct(genPoolID, 0, 3, rapid.ID).Draw(t, "pools") {
		pools = append(pools, Pool{
			ID:              id,
			SourceLanguages: few(t, genTag, 2, "pool source"),
			TargetLanguages: few(t, genTag, 2, "pool target"),
			Services:        few(t, genService, 1, "pool services"),
			Labels:          genLabels.Draw(t, "pool labels"),
		})
	}
	return pools
}

func genRequirement(t *rapid.T) *freeslot.Requirement {
	orNone := func(g *rapid.Generator[string], label string) string {
		return rapid.OneOf(rapid.Just(""), g).Draw(t, label)
	}
	return &freeslot.Requirement{
		Pool:           orNone(genPoolID, "pool"),
		Services:       few(t, genService, 1, "further services"),
		SourceLanguage: orNone(genTag, "source"),
		TargetLanguage: orNone(genTag, "target"),
		Labels:         genLabels.Draw(t, "labels"),
	}
}

func TestMatchAgreesWithTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		node, pools, service, r := genNode(t, "n"), genPools(t), genService.Draw(t, "service"), genRequirement(t)
		if err := pools.Validate("pools"); err != nil {
			t.Fatalf("generated pools are invalid: %v", err)
		}
		want, _ := slowMatch(pools, node, service, r)
		if got := Compile(node).Match(pools, service, r); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		want, _ = slowMatch(nil, node, service, r)
		if got := Match(node, service, r); got != want {
			t.Fatalf("without pools: got %q, want %q", got, want)
		}
	})
}

// A node is listed under exactly the pools in which a job that names one finds it.
func TestMembersAgreesWithRequirementPool(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		node, pools := genNode(t, "n"), genPools(t)
		node.Services = append(node.Services, freeslot.Service{Name: "always"})
		members := pools.Members(node)
		for _, id := range []string{"p", "q", "r", "s"} {
			why := Compile(node).Match(pools, "always", &freeslot.Requirement{Pool: id})
			if slices.Contains(members, id) != (why == "") {
				t.Fatalf("pool %s: members %q, match %q", id, members, why)
			}
		}
	})
}

// modelNode is what the twin knows of a node.
type modelNode struct {
	profile       *freeslot.Node
	used, pending int
	seen          bool
	seenAt        int64
	draining      bool
}

func genFleet(t *rapid.T) ([]*Node, map[string]*modelNode) {
	nodes, models := []*Node(nil), map[string]*modelNode{}
	for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
		m := &modelNode{
			profile: genNode(t, fmt.Sprintf("n%d", i)),
			used:    rapid.IntRange(0, 4).Draw(t, "used"),
			seen:    rapid.IntRange(0, 9).Draw(t, "seen") > 0,
			seenAt:  rapid.Int64Range(-9, 9).Draw(t, "seen at"),
		}
		m.draining = rapid.IntRange(0, 4).Draw(t, "draining") == 0
		n := NewNode(Compile(m.profile))
		if rapid.Bool().Draw(t, "take") && n.TryTake(1) {
			m.pending = 1
		}
		n.SetUsed(m.used)
		n.SetDraining(m.draining)
		if m.seen {
			n.Seen(m.seenAt)
		}
		nodes, models[m.profile.ID] = append(nodes, n), m
	}
	return nodes, models
}

func genQuery(t *rapid.T) Query {
	return Query{
		Want:         rapid.IntRange(1, 8).Draw(t, "want"),
		Slots:        rapid.IntRange(1, 3).Draw(t, "slots"),
		Samples:      rapid.IntRange(0, 10).Draw(t, "samples"),
		Now:          rapid.Int64Range(0, 20).Draw(t, "now"),
		SilenceLimit: time.Duration(rapid.Int64Range(1, 20).Draw(t, "limit")),
		Exclude:      few(t, rapid.SampledFrom([]string{"n0", "n1", "n2", "x"}), 3, "exclude"),
	}
}

// Choose and Breakdown against the twin: only nodes that qualify are chosen, as
// many as wanted or there are, without repetition, tier by tier; and every node
// is counted once.
func TestChooseAgreesWithTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, models := genFleet(t)
		pools, r, q := genPools(t), genRequirement(t), genQuery(t)
		class := NewClass(nodes, pools, "tts", r)
		tiers, reasons, qualifying := map[string]int{}, map[string]int{}, 0
		fits := 0
		for id, m := range models {
			why, tier := slowMatch(pools, m.profile, "tts", r)
			if why == "" {
				fits++
				why = slowCheck(m, q)
			}
			if why == "" {
				qualifying++
				tiers[id] = tier
			} else {
				reasons[string(why)]++
			}
		}
		if class.Fits() != fits {
			t.Fatalf("got %d fits, want %d", class.Fits(), fits)
		}
		if got := class.Breakdown(q); fmt.Sprint(got) != fmt.Sprint(reasons) {
			t.Fatalf("breakdown: got %v, want %v", got, reasons)
		}
		got := class.Choose(make([]*Node, 0, 8), q, NewSource(rapid.Uint64().Draw(t, "seed")))
		if len(got) != min(q.Want, qualifying) {
			t.Fatalf("got %q, want %d of %v", ids(got), q.Want, tiers)
		}
		checkTierOrder(t, ids(got), tiers)
	})
}

func checkTierOrder(t *rapid.T, chosen []string, tiers map[string]int) {
	for i, id := range chosen {
		if _, ok := tiers[id]; !ok {
			t.Fatalf("%s does not qualify", id)
		}
		if slices.Contains(chosen[:i], id) {
			t.Fatalf("%s is chosen twice", id)
		}
		for other, tier := range tiers {
			if tier < tiers[id] && !slices.Contains(chosen[:i], other) {
				t.Fatalf("%s of tier %d is chosen before %s of tier %d", id, tiers[id], other, tier)
			}
		}
	}
}
