package freeslot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

func ExampleJob_Validate() {
	job := freeslot.Job{
		Service:     "tts",
		Payload:     json.RawMessage(`{"text":"Servus"}`),
		Requirement: freeslot.Requirement{TargetLanguage: "de-AT", Pool: "no good"},
	}
	var refused *freeslot.Error
	if errors.As(job.Validate("job"), &refused) {
		fmt.Println(refused.Code, refused.Field)
	}
	// Output: invalid_argument job.requirement.pool
}

func ExampleError_Is() {
	err := fmt.Errorf("submit: %w", &freeslot.Error{Code: freeslot.CodeOverloaded, Message: "all nodes are busy"})
	fmt.Println(errors.Is(err, &freeslot.Error{Code: freeslot.CodeOverloaded}), freeslot.CodeOf(err).Temporary())
	// Output: true true
}

// field returns what an error names, "" for nil.
func field(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var coded *freeslot.Error
	if !errors.As(err, &coded) || coded.Code != freeslot.CodeInvalidArgument || !strings.HasPrefix(coded.Message, coded.Field) {
		t.Fatalf("%#v is not an invalid_argument that begins with its field", err)
	}
	return coded.Field
}

func TestValidateName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "9", "node-1", "A.b_c-d", strings.Repeat("x", 64)} {
		if err := freeslot.ValidateName("node", name); err != nil {
			t.Errorf("%q: %v; want no error", name, err)
		}
	}
	for _, name := range []string{"", "-a", ".a", "_a", "a:b", "a{b}", "a b", "a\n", "ä", "a/b", strings.Repeat("x", 65), "\xff"} {
		if got := field(t, freeslot.ValidateName("node", name)); got != "node" {
			t.Errorf("%q: field %q", name, got)
		}
	}
}

func TestJobValidate(t *testing.T) {
	t.Parallel()
	many := make(map[string]string)
	for i := range freeslot.MaxLabels + 1 {
		many[fmt.Sprintf("l%d", i)] = ""
	}
	for name, c := range map[string]struct {
		change func(*freeslot.Job)
		field  string
	}{
		"nothing":       {func(*freeslot.Job) {}, ""},
		"largest slots": {func(j *freeslot.Job) { j.Slots = freeslot.MaxSlots }, ""},
		"asked pool": {func(j *freeslot.Job) {
			j.Admission = &freeslot.Admission{Pool: "x", AskedPool: "a b\n*|\x00"}
		}, "job.admission.asked_pool"},
		"asked preferred pool": {func(j *freeslot.Job) {
			j.Admission = &freeslot.Admission{AskedPreferredPool: strings.Repeat("a", 1000)}
		}, "job.admission.asked_preferred_pool"},
		"no service":           {func(j *freeslot.Job) { j.Service = "" }, "job.service"},
		"negative slots":       {func(j *freeslot.Job) { j.Slots = -1 }, "job.slots"},
		"too many slots":       {func(j *freeslot.Job) { j.Slots = freeslot.MaxSlots + 1 }, "job.slots"},
		"payload not JSON":     {func(j *freeslot.Job) { j.Payload = json.RawMessage(`{`) }, "job.payload"},
		"payload not UTF-8":    {func(j *freeslot.Job) { j.Payload = json.RawMessage("\"\xff\"") }, "job.payload"},
		"trace with a newline": {func(j *freeslot.Job) { j.TraceParent = "00\n" }, "job.traceparent"},
		"affinity key":         {func(j *freeslot.Job) { j.AffinityKey = "user 1/ä" }, ""},
		"affinity key control": {func(j *freeslot.Job) { j.AffinityKey = "a\x7f" }, "job.affinity_key"},
		"affinity key bytes":   {func(j *freeslot.Job) { j.AffinityKey = "\xff" }, "job.affinity_key"},
		"long affinity key":    {func(j *freeslot.Job) { j.AffinityKey = strings.Repeat("x", 129) }, "job.affinity_key"},
		"preferred pool":       {func(j *freeslot.Job) { j.Requirement.PreferredPool = "a:b" }, "job.requirement.preferred_pool"},
		"bad pool":             {func(j *freeslot.Job) { j.Requirement.Pool = "a:b" }, "job.requirement.pool"},
		"bad service":          {func(j *freeslot.Job) { j.Requirement.Services = []string{"ok", ""} }, "job.requirement.services[1]"},
		"source":               {func(j *freeslot.Job) { j.Requirement.SourceLanguage = "not a tag" }, "job.requirement.source_language"},
		"target":               {func(j *freeslot.Job) { j.Requirement.TargetLanguage = strings.Repeat("a", 65) }, "job.requirement.target_language"},
		"many labels":          {func(j *freeslot.Job) { j.Requirement.Labels = many }, "job.requirement.labels"},
		"many features":        {func(j *freeslot.Job) { j.Requirement.Features = make([]string, 65) }, "job.requirement.features"},
		"feature":              {func(j *freeslot.Job) { j.Requirement.Features = []string{"ok", "a b"} }, "job.requirement.features[1]"},
		"label name":           {func(j *freeslot.Job) { j.Requirement.Labels = map[string]string{"a b": ""} }, "job.requirement.labels name"},
		"label value":          {func(j *freeslot.Job) { j.Requirement.Labels = map[string]string{"a": "\x00"} }, "job.requirement.labels.a"},
	} {
		job := freeslot.Job{Service: "tts"}
		c.change(&job)
		if got := field(t, job.Validate("job")); got != c.field {
			t.Errorf("%s: field %q, want %q", name, got, c.field)
		}
	}
}

// A payload is any JSON value, nested at most 9,000 levels deep.
func TestPayloadValidate(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	for _, text := range []string{
		`1`, `-0.5e+7`, `"a b"`, `"\n\"\/"`, `"ü€"`, `{"a":[1,{"b":null},true],"c":{}}`, `[[],{}] `, `"<"`, "\"\u2029\"", `[1, 2]`, "{\"a\":\n1}", `{ }`,
		`"\u00fc"`, `"\ud800"`, ` 1`, `{"a":1,"a":2}`, nested(9_000),
	} {
		job := freeslot.Job{Service: "a", Payload: json.RawMessage(text)}
		if err := job.Validate("job"); err != nil {
			t.Errorf("%.40q: %v; want no error", text, err)
		}
	}
	for _, text := range []string{
		`"`, `"a`, `"\`, `"\x"`, "\"\n\"", `{`, `[`, `[1`, `[1,`, `[1,]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1:1}`, `[1}`, `{"a":1]`, `-`, `1.`, `1e`,
		`.5`, `+1`, `01`, `tru`, `nul`, `falsy`, `}`, `]`, `,`, `12]`, `-0.5e+7,`, `"a b"x`, "\x00", "\"\xff\"", nested(9_001),
	} {
		job := freeslot.Job{Service: "a", Payload: json.RawMessage(text)}
		if job.Validate("job") == nil {
			t.Errorf("%.40q is accepted", text)
		}
	}
}

// TestJSONDepth: what is valid fits into every message around it, whose decoders stop at 10,000.
func TestJSONDepth(t *testing.T) {
	t.Parallel()
	array := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	object := func(n int) string { return strings.Repeat(`{"":`, n) + "1" + strings.Repeat("}", n) }
	for name, c := range map[string]struct {
		text string
		want string // "" is valid
	}{
		"arrays":              {array(9000), ""},
		"objects":             {object(9000), ""},
		"many beside":         {"[" + strings.Repeat("[],{},", 9000) + "1]", ""},
		"brackets in text":    {`["\"` + strings.Repeat("[{", 9000) + `\\",` + array(8999) + "]", ""},
		"deep arrays":         {array(9001), "nests deeper than 9000"},
		"deep objects":        {object(9001), "nests deeper than 9000"},
		"deep and mixed":      {array(1)[:1] + object(9000) + "]", "nests deeper than 9000"},
		"deep behind a text":  {`["\\",` + array(9000) + "]", "nests deeper than 9000"},
		"deeper than decoded": {array(20000), "nests deeper than 9000"},
		"unclosed":            {strings.Repeat("[", 9000), "is not valid JSON"},
	} {
		err := freeslot.ValidateJSON("payload", []byte(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
}

func TestNodeValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*freeslot.Node)
		field  string
	}{
		"nothing":     {func(*freeslot.Node) {}, ""},
		"no id":       {func(n *freeslot.Node) { n.ID = "" }, "node.node_id"},
		"no slots":    {func(n *freeslot.Node) { n.MaxConcurrency = 0 }, "node.max_concurrency"},
		"service":     {func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "a:b"}} }, "node.installed_services"},
		"version":     {func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "a", Version: " "}} }, "node.installed_services.version"},
		"endpoint":    {func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "a", Endpoint: "nowhere"}} }, "node.installed_services.endpoint"},
		"pool":        {func(n *freeslot.Node) { n.Pools = []string{"{}"} }, "node.pool_ids"},
		"pools":       {func(n *freeslot.Node) { n.Pools = make([]string, freeslot.MaxPools+1) }, "node.pool_ids"},
		"feature":     {func(n *freeslot.Node) { n.Features = map[string]bool{"": true} }, "node.features_supported"},
		"language":    {func(n *freeslot.Node) { n.Languages.TTS = []string{"de", "??"} }, "node.capabilities.tts_languages"},
		"label value": {func(n *freeslot.Node) { n.Labels = map[string]string{"a": strings.Repeat("x", 129)} }, "node.labels.a"},
	} {
		node := freeslot.Node{ID: "n", MaxConcurrency: 1}
		c.change(&node)
		if got := field(t, node.Validate("node")); got != c.field {
			t.Errorf("%s: field %q, want %q", name, got, c.field)
		}
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for endpoint, ok := range map[string]bool{
		"http://10.0.0.7:8000": true, "https://asr.example/v1?model=x": true, "grpc://[::1]:9000": true, "10.0.0.7:9000": true, "asr.local:http": true, "[::1]:80": true,
		"": false, "asr": false, "10.0.0.7": false, ":80": false, "host:": false, "host:80/path": false, "http://": false, "http://a b": false, "http://a\n": false,
		"http://user:hidden@host": false, "http://hidden@host": false, "hidden@host:80": false, "http://hóst": false,
		"http://" + strings.Repeat("a", 248): true, "http://" + strings.Repeat("a", 249): false,
	} {
		err := freeslot.ValidateEndpoint("x", endpoint)
		if (err == nil) != ok {
			t.Errorf("%q: %v; want (err == nil) == %v", endpoint, err, ok)
		}
		if err != nil && (field(t, err) != "x" || strings.Contains(err.Error(), "hidden")) {
			t.Errorf(`%q: %v; want no error or (field(t, err) == "x" and not strings.Contains(err.Error(), "hidden"))`, endpoint, err)
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		`{"service":"a"}`: true, ` {"service":"a"} ` + "\n": true,
		`{"service":"a","x":1}`: false, `{"service":1}`: false, `{"service":"a"}}`: false, `{"service":"a"}]`: false,
		`{"service":"a"} {}`: false, `{"service":"a"}x`: false, ``: false, `{`: false,
	} {
		var job freeslot.Job
		if err := freeslot.DecodeStrict("job", []byte(in), &job); (err == nil) != ok {
			t.Errorf("%q: %v; want (err == nil) == %v", in, err, ok)
		}
	}
}

func TestDecodeStrictErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		`{"x":1}`:           {"x", "x is not a known field"},
		`{"cron":7}`:        {"cron", "cron is a number, expected a string"},
		`{"grace":"1s"}`:    {"grace", "grace is a string, expected an integer in range"},
		`{"grace":0.5}`:     {"grace", "grace is 0.5, expected an integer in range"},
		`{"in":{"on":"y"}}`: {"in.on", "in.on is a string, expected true or false"},
		`{"in":[]}`:         {"in", "in is an array, expected an object"},
		`{"cron":true}`:     {"cron", "cron is true or false, expected a string"},
		`[]`:                {"what", "what is an array, expected an object"},
		`{`:                 {"what", "what: unexpected EOF"},
	} {
		var v struct {
			Cron  string `json:"cron"`
			Grace int64  `json:"grace"`
			In    *struct {
				On *bool `json:"on"`
			} `json:"in"`
		}
		var e *freeslot.Error
		err := freeslot.DecodeStrict("what", []byte(in), &v)
		if !errors.As(err, &e) || e.Code != freeslot.CodeInvalidArgument || e.Field != want[0] || e.Message != want[1] {
			t.Errorf("%s: %v; want errors.As(err, &e), e.Code == freeslot.CodeInvalidArgument, e.Field == want[0], e.Message == want[1]", in, err)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	terminal := 0
	for _, s := range freeslot.States() {
		if s.Terminal() {
			terminal++
		}
	}
	if terminal != 5 || len(freeslot.States()) != 11 {
		t.Errorf("%d of %d states are terminal", terminal, len(freeslot.States()))
	}
}

func FuzzDecodeStrict(f *testing.F) {
	for _, seed := range []string{`{"service":"a"}`, `{"requirement":{"labels":{"a":"b"}}}`, `[]`, `{"slots":1e400}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var job freeslot.Job
		if freeslot.DecodeStrict("job", data, &job) != nil {
			return
		}
		if !json.Valid(data) {
			t.Errorf("%q is not JSON", data)
		}
		if job.Validate("job") == nil && job.SlotCount() < 1 {
			t.Errorf("%q takes %d slots", data, job.SlotCount())
		}
	})
}
