package selection

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
)

// TestScenario replays testdata/*.txt. A file lists, one a line:
//
//	config <mode> policy= disabled
//	pool <id> members= source= target= services= labels=
//	node <id> cell= max= used= pending= services= asr= tts= semantic= pools= labels= draining silent refused=
//	job <service> pool= prefer= source= target= services= labels= rules= slots= exclude= skip= key= explain
//	# a comment
//
// Lists are separated by commas, labels are name:value, services of nodes name:version, label rules
// label:operator:value|value; a "_" in a range of versions is a space. Nodes have four slots unless
// they say otherwise. skip= lists cells. Below each job stand the expected lines, which begin with
// "=" and which -update rewrites:
//
//	= fits       nodes whose profile fits, and the most slots of one of them
//	= tier n     those that qualify now, by tier
//	= first      those that can be the first choice, as 1000 seeds show
//	= breakdown  the others
//	= not        each of them with the reason in words, if the job says explain
func TestScenario(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := (&scenario{t: t, config: Config{Enabled: true}}).replay(string(want))
			if diff := cmp.Diff(string(want), got); diff != "" && !*update {
				t.Errorf("%s (-want +got; rewrite with -update):\n%s", file, diff)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

type scenario struct {
	t      *testing.T
	config Config
	nodes  []*Node
}

func (s *scenario) replay(text string) string {
	var out bytes.Buffer
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "=") {
			continue
		}
		out.WriteString(line)
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		fields := s.parse(line, words[2:])
		switch words[0] {
		case "config":
			s.config.Mode, s.config.Policy = Mode(words[1]), Policy(fields.text("policy"))
			s.config.Enabled = !fields.flag("disabled")
		case "pool":
			s.addPool(words[1], fields)
		case "node":
			s.addNode(words[1], fields)
		case "job":
			s.job(&out, words[1], fields)
		default:
			s.t.Fatalf("%q: expected config, pool, node, job or #", line)
		}
		for name := range fields {
			s.t.Errorf("%q: unknown or repeated field %s", line, name)
		}
	}
	return out.String()
}

// scenarioFields are what follows the first two words; readers delete what they
// read, so that a misspelt one is noticed.
type scenarioFields map[string]string

func (s *scenario) parse(line string, words []string) scenarioFields {
	fields := scenarioFields{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if _, ok := fields[name]; ok {
			s.t.Errorf("%q: %s is given twice", line, name)
		}
		fields[name] = value
	}
	return fields
}

func (f scenarioFields) text(name string) string {
	defer delete(f, name)
	return f[name]
}

func (f scenarioFields) flag(name string) bool {
	defer delete(f, name)
	_, ok := f[name]
	return ok
}

func (f scenarioFields) number(name string, absent int) int {
	if n, err := strconv.Atoi(f[name]); err == nil {
		delete(f, name)
		return n
	}
	return absent
}

func (f scenarioFields) list(name string) []string {
	return strings.FieldsFunc(f.text(name), func(r rune) bool { return r == ',' })
}

func (f scenarioFields) services(name string) []string {
	entries := f.list(name)
	for i, entry := range entries {
		entries[i] = strings.ReplaceAll(entry, "_", " ")
	}
	return entries
}

func (f scenarioFields) installed() []freeslot.Service {
	list := services(f.list("services")...)
	for i, s := range list {
		if name, version, ok := strings.Cut(s.Name, ":"); ok {
			list[i] = freeslot.Service{Name: name, Version: version}
		}
	}
	return list
}

func (f scenarioFields) rules() []freeslot.LabelRule {
	var rules []freeslot.LabelRule
	for _, rule := range f.list("rules") {
		words := strings.Split(rule, ":")
		r := freeslot.LabelRule{Label: words[0], Operator: freeslot.LabelOperator(words[1])}
		if len(words) > 2 {
			r.Values = strings.Split(words[2], "|")
		}
		rules = append(rules, r)
	}
	return rules
}

func (f scenarioFields) labels() map[string]string {
	labels := map[string]string{}
	for _, label := range f.list("labels") {
		name, value, _ := strings.Cut(label, ":")
		labels[name] = value
	}
	return labels
}

func (s *scenario) addPool(id string, f scenarioFields) {
	s.config.Pools = append(s.config.Pools, Pool{
		ID: id, SourceLanguages: f.list("source"), TargetLanguages: f.list("target"),
		Services: f.services("services"), Labels: f.labels(), Members: f.list("members"),
	})
	if err := s.config.Validate("").Err(); err != nil {
		s.t.Error(err)
	}
}

func (s *scenario) addNode(id string, f scenarioFields) {
	profile := &freeslot.Node{
		ID: id, MaxConcurrency: f.number("max", 4), Services: f.installed(),
		Languages: freeslot.Languages{ASR: f.list("asr"), TTS: f.list("tts"), Semantic: f.list("semantic")},
		Pools:     f.list("pools"), Labels: f.labels(),
	}
	if err := profile.Validate("node"); err != nil {
		s.t.Error(err)
	}
	n := NewNode(Compile(profile), f.number("cell", 0))
	if pending := f.number("pending", 0); pending > 0 && !n.TryTake(pending) {
		s.t.Errorf("node %s has no %d slots to take", id, pending)
	}
	n.SetUsed(f.number("used", 0))
	n.SetDraining(f.flag("draining"))
	for range f.number("refused", 0) {
		n.Refused(0)
	}
	if !f.flag("silent") {
		n.Seen(0)
	}
	s.nodes = append(s.nodes, n)
}

func (s *scenario) job(out *bytes.Buffer, service string, f scenarioFields) {
	job := &freeslot.Job{Service: service, Slots: f.number("slots", 1), AffinityKey: f.text("key"), Requirement: freeslot.Requirement{
		Pool: f.text("pool"), PreferredPool: f.text("prefer"), Services: f.services("services"), Labels: f.labels(),
		SourceLanguage: f.text("source"), TargetLanguage: f.text("target"), LabelRules: f.rules(),
	}}
	if err := job.Validate("job"); err != nil {
		s.t.Error(err)
	}
	config := s.config // later lines add to the other
	class := NewClass(s.nodes, &config, service, &job.Requirement)
	query := Query{Slots: job.SlotCount(), Exclude: f.list("exclude"), Want: len(s.nodes), AffinityKey: job.AffinityKey}
	for _, cell := range f.list("skip") {
		index, err := strconv.Atoi(cell)
		if err != nil {
			s.t.Error(err)
		}
		query.Skip = query.Skip.With(index)
	}
	fmt.Fprintf(out, "= fits %d of %d", class.Fits(), len(s.nodes))
	if class.Fits() > 0 {
		fmt.Fprintf(out, ", up to %d slots", class.MaxSlots())
	}
	out.WriteByte('\n')
	var all []*Node // what qualifies of one cell after the other
	for cell := range MaxCells {
		one := query
		one.Skip |= Only(cell)
		all = append(all, class.Choose(make([]*Node, 0, len(s.nodes)), &one, NewSource(1))...)
	}
	for i, tier := range class.tiers {
		qualify := slices.DeleteFunc(slices.Clone(all), func(n *Node) bool { return !slices.Contains(tier.nodes, n) })
		fmt.Fprintf(out, "= tier %d: %s\n", i+1, sorted(qualify))
	}
	if len(all) > 0 {
		fmt.Fprintf(out, "= first: %s\n", sorted(firstChoices(class, query)))
	}
	if counts := class.Breakdown(&query); len(counts) > 0 {
		fmt.Fprintf(out, "= breakdown: %s\n", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(counts), "map["), "]"))
	}
	if !f.flag("explain") {
		return
	}
	for _, n := range Explain(s.nodes, &config, service, &job.Requirement, &query).Nodes {
		if n.Reason != "" {
			fmt.Fprintf(out, "= not %s: %s: %s\n", n.Node, n.Reason, n.Detail)
		}
	}
}

func firstChoices(class *Class, query Query) []*Node {
	var first []*Node
	query.Want = 1
	for seed := range uint64(1000) {
		if n := class.Choose(make([]*Node, 0, 1), &query, NewSource(seed))[0]; !slices.Contains(first, n) {
			first = append(first, n)
		}
	}
	return first
}

func sorted(nodes []*Node) string {
	names := ids(nodes)
	slices.Sort(names)
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}
