package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker (-X main.version=v0.1.0); without, what the build
// knows of itself is shown.
var version string

func versionLine() string {
	return fmt.Sprintf("nodeagent %s (%s %s/%s)", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
