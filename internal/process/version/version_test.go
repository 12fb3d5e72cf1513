package version

import (
	"runtime/debug"
	"testing"
)

// TestOf: a program of another module has the version of freeslot that it requires.
func TestOf(t *testing.T) {
	t.Parallel()
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}}
	for name, test := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"freeslot's own":       {debug.BuildInfo{Settings: revision}, "dev-0123456789ab"},
		"without a repository": {debug.BuildInfo{}, "dev"},
		"another module":       {debug.BuildInfo{Settings: revision, Deps: []*debug.Module{{Path: "example.com/a"}, {Path: module, Version: "v1.2.0"}}}, "v1.2.0"},
		"replaced by a folder": {debug.BuildInfo{Settings: revision, Deps: []*debug.Module{{Path: module, Version: "v1.2.0", Replace: &debug.Module{Path: "../freeslot"}}}}, "dev"},
		"in a workspace":       {debug.BuildInfo{Settings: revision, Deps: []*debug.Module{{Path: module, Version: "(devel)"}}}, "dev"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := of(&test.info); got != test.want {
				t.Errorf("the version is %s; want %s", got, test.want)
			}
		})
	}
}
