// Package version returns the version of this build.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// stamped is set by the linker: -X
// github.com/freeslot/freeslot/internal/process/version.stamped=v0.1.0.
var stamped string

const module = "github.com/freeslot/freeslot"

// String returns the version that was stamped into the build or, without one, its revision. In a
// program of another module it is the version of freeslot that the program was built with.
func String() string { return known() }

var known = sync.OnceValue(func() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return of(info)
})

func of(info *debug.BuildInfo) string {
	for _, dep := range info.Deps {
		if dep.Path == module && dep.Replace == nil && dep.Version != "" && dep.Version != "(devel)" {
			return dep.Version
		} else if dep.Path == module {
			return "dev"
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "dev-" + s.Value[:12]
		}
	}
	return "dev"
}

// Line returns the output of a program's version command.
func Line(program string) string {
	return fmt.Sprintf("%s %s (%s %s/%s)", program, String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
