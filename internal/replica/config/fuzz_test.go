package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// FuzzLoad: every file is loaded or refused with a reason.
func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile("../../../deploy/scheduler.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example), "a,b")
	f.Add("tokens: [{token: a, tenant: b}, 1, null, [x]]\npools: {1: 2}\n1: 2\n", "[{id: a}]")
	f.Add("[[tokens]]\ntoken = 'a'\n[redis]\nurl = 1\n", "")
	f.Add("redis: &a {url: *a}\n", "{")
	f.Fuzz(func(t *testing.T, text, pools string) {
		for _, name := range []string{"f.yaml", "f.toml"} {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := config.LoadReplica(config.Options{File: file, Environ: []string{"FREESLOT_POOLS=" + pools}})
			if err != nil && strings.TrimSpace(err.Error()) == "" {
				t.Errorf("%s is refused without a reason", name)
			}
		}
	})
}
