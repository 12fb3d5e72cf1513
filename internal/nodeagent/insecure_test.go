package nodeagent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestInsecure: secrets that every user can read, and commands that run as root, are named.
func TestInsecure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := func(name string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	shown, group := secret("shown", 0o644), secret("group", 0o640)
	open := `"` + shown + `", which every user of this machine can read, expected mode 0400`
	commands := []Service{{HTTP: &HTTP{}}, {Command: &Command{}}, {Command: &Command{User: "nobody"}}}
	for name, c := range map[string]struct {
		cfg    Config
		asRoot bool
		want   config.Problems
	}{
		"nothing":           {Config{Services: commands}, false, nil},
		"a group's file":    {Config{TokenFile: group, Redis: Redis{PasswordFile: filepath.Join(dir, "none")}}, true, nil},
		"everyone's token":  {Config{TokenFile: shown}, false, config.Problems{{Path: "token_file", Message: "is " + open}}},
		"everyone's secret": {Config{Redis: Redis{PasswordFile: shown, SentinelPasswordFile: group}}, false, config.Problems{{Path: "redis.password_file", Message: "is " + open}}},
		"root":              {Config{Services: commands}, true, config.Problems{{Path: "services[1].command", Message: "runs as root, expected user, or an agent that runs as a user of its own"}}},
	} {
		if diff := cmp.Diff(c.want, c.cfg.Insecure(c.asRoot)); diff != "" {
			t.Errorf("%s (-expected +came):\n%s", name, diff)
		}
	}
}
