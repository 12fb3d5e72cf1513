package lock

import (
	"fmt"
	"runtime"
	"strings"
)

// origin is the place in the program that acquired a lock. Its name is looked up only for the rare
// log line that needs it.
type origin [4]uintptr

// callerOf returns where the method of Lock was called that calls take.
func callerOf() (o origin) {
	runtime.Callers(3, o[:]) // skip Callers, callerOf and take
	return o
}

// methods is the prefix of the names of Lock's methods, which call each other.
const methods = "/lock.(*Lock)."

// String returns the file, line and function that called Lock, TryLock or Do.
func (o origin) String() string {
	frames := runtime.CallersFrames(o[:])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.Contains(f.Function, methods) {
			return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Function)
		}
		if !more {
			return "unknown"
		}
	}
}
