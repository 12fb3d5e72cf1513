package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-X main.version=v0.1.0); without, what the build
// knows of itself is shown.
var version string

type versionCmd struct{}

// Run prints one line.
func (versionCmd) Run(env *environment) error {
	_, err := fmt.Fprintf(env.out, "scheduler %s (%s %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}
