package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// decodeDuration lets all durations of flags have days, such as 7d and 1d12h.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := parseDuration(text)
	if err == nil {
		target.SetInt(int64(d))
	}
	return err
}

// maxDays is the number of days in the longest duration of Go.
const maxDays = 106_751

func parseDuration(text string) (d time.Duration, err error) {
	days, rest, has := strings.Cut(text, "d")
	if !has {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 64)
	if err == nil && (rest != "" || !has) {
		d, err = time.ParseDuration(rest)
	}
	if err != nil || n >= maxDays || has && d < 0 {
		return 0, fmt.Errorf("expected a duration such as 30s, 5m or 7d, got %.64q", text)
	}
	return d + time.Duration(n)*24*time.Hour, nil
}

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
