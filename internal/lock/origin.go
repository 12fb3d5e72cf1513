package lock

import (
	"fmt"
	"runtime"
	"strings"
)

// origin is where in the program a lock was acquired. Looking up its name is left to the rare log
// line that needs it.
type origin [4]uintptr

// callerOf is where the method of Lock was called that calls take.
func callerOf() (o origin) {
	runtime.Callers(3, o[:]) // not Callers, callerOf and take
	return o
}

// methods begin the names of the methods of Lock, which call each other.
const methods = "/lock.(*Lock)."

// String is the file, line and function that called Lock, TryLock or Do.
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
