package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
)

func TestDecodeDocument(t *testing.T) {
	t.Parallel()
	type part struct {
		Name  string            `koanf:"name"`
		Words []string          `koanf:"words"`
		Tags  map[string]string `koanf:"tags"`
	}
	var got struct {
		On    bool    `koanf:"on"`
		Parts []part  `koanf:"parts"`
		Share float64 `koanf:"share"`
	}
	document, err := config.ParseYAML([]byte(`{"on": true, "share": 2, "parts": [{"name": "a", "words": ["x"], "tags": {"k": "v"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if problems := config.Decode(document, &got); len(problems) > 0 {
		t.Error(problems)
	}
	if d := cmp.Diff([]part{{"a", []string{"x"}, map[string]string{"k": "v"}}}, got.Parts); d != "" || !got.On || got.Share != 2 {
		t.Error(d, got)
	}
	problems := config.Decode(map[string]any{"on": "yes", "part": 1, "parts": []any{map[string]any{"name": 7, "nam": "x"}}, "share": "x"}, &got)
	var paths []string
	for _, p := range problems {
		paths = append(paths, p.Path)
	}
	if d := cmp.Diff([]string{"on", "part", "parts[0].nam", "parts[0].name", "share"}, paths); d != "" {
		t.Error(d, problems)
	}
	for _, text := range []string{"[1]", "a: 1\n---\nb: 2", "a: ["} {
		if _, err := config.ParseYAML([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
