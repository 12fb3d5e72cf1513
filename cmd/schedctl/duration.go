package main

import (
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

// leastDuration is the smallest value of duration flags that have no tag "least". Requests carry
// whole milliseconds, and a time that is over, or none at all, is a mistake that a flag must not
// express.
const leastDuration = time.Millisecond

// checkDurations refuses durations that make no sense, for all flags of the command. The tag
// `least:"0s"` is for flags to which zero means something.
func checkDurations(ctx *kong.Context) error {
	for _, flag := range ctx.Flags() {
		target := reflect.Indirect(flag.Target)
		if !flag.Set || !target.IsValid() || target.Type() != reflect.TypeFor[time.Duration]() {
			continue
		}
		least := leastDuration
		if text := flag.Tag.Get("least"); text != "" {
			var err error
			if least, err = time.ParseDuration(text); err != nil {
				panic(err) // the commands struct is wrong
			}
		}
		if d := time.Duration(target.Int()); d < least {
			return usage("--%s is %s, expected at least %s", flag.Name, d, least)
		}
	}
	return nil
}
