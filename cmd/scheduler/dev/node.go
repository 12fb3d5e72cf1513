package dev

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/worker"
)

// gatewayNode is the node that knows no Redis, but the replica and a token.
const gatewayNode = "node-gpu"

// profiles are the three nodes. Each can do something that the others cannot.
func profiles() []freeslot.Node {
	return []freeslot.Node{
		{
			ID: "node-en", MaxConcurrency: 4,
			Languages: freeslot.Languages{ASR: []string{"en", "de"}, TTS: []string{"en"}},
			Services:  []freeslot.Service{{Name: "echo"}, {Name: "wordcount"}, {Name: loadService}},
		},
		{
			ID: "node-de", MaxConcurrency: 2,
			Languages: freeslot.Languages{ASR: []string{"en", "de"}, TTS: []string{"de", "fr"}},
			Services:  []freeslot.Service{{Name: "echo"}, {Name: "upper"}, {Name: loadService}},
		},
		{
			ID: gatewayNode, MaxConcurrency: 1, Labels: map[string]string{"gpu": "a100"},
			Services: []freeslot.Service{{Name: "echo"}, {Name: "sha256"}, {Name: loadService}},
		},
	}
}

// handlers are the services by name. Text services take a JSON string.
var handlers = map[string]worker.HandlerFunc{
	"echo": func(_ context.Context, job *worker.Job) (any, error) { return job.Payload, nil },
	"upper": textHandler(func(s string) any {
		return strings.ToUpper(s)
	}),
	"wordcount": textHandler(func(s string) any {
		return len(strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }))
	}),
	"sha256": textHandler(func(s string) any {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}),
	loadService: doWork,
}

func textHandler(f func(string) any) worker.HandlerFunc {
	return func(_ context.Context, job *worker.Job) (any, error) {
		var text string
		if err := json.Unmarshal(job.Payload, &text); err != nil {
			return nil, fmt.Errorf("payload must be a JSON string: %w", err)
		}
		return f(text), nil
	}
}

// firstBatch returns jobs for every node, and jobs that some nodes must not get.
func firstBatch() []freeslot.Job {
	text := func(s string) json.RawMessage {
		data, _ := json.Marshal(s) // a string always can be
		return data
	}
	return []freeslot.Job{
		{Service: "echo", Payload: json.RawMessage(`{"hello":"world"}`)},
		{Service: "wordcount", Payload: text("the quick brown fox jumps over the lazy dog")},
		{Service: "upper", Payload: text("shout it out")},
		{Service: "sha256", Payload: text("freeslot")},
		{Service: "echo", Payload: text("Servus"), Requirement: freeslot.Requirement{TargetLanguage: "de-AT"}},
		{
			Service: "echo", Payload: text("hello"),
			Requirement: freeslot.Requirement{SourceLanguage: "de", TargetLanguage: "en-GB"},
		},
		{
			Service: "echo", Payload: text("on the GPU"),
			Requirement: freeslot.Requirement{Labels: map[string]string{"gpu": "a100"}},
		},
		{Service: "echo", Payload: text("two slots"), Slots: 2},
		{Service: "wordcount", Payload: text("one two three")},
		{Service: "upper", Payload: text("and again")},
	}
}
