package lock

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/freeslot/freeslot"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	got := Config{Key: "k"}.WithDefaults()
	want := Config{
		Key: "k", Lease: 30 * time.Second, Renewal: 10 * time.Second, WatchdogPeriod: 5 * time.Second,
		Recovery: RecoverCancel, AlertThreshold: 3, Margin: 300 * time.Millisecond,
	}
	if got != want {
		t.Errorf("%+v; want got == %v", got, want)
	}
	if c := (Config{Key: "k", Lease: MinLease}).WithDefaults(); c.Margin != MinMargin || c.Validate() != nil {
		t.Errorf("%+v: %v; want c.Margin == MinMargin, c.Validate() == nil", c, c.Validate())
	}
	for field, bad := range map[string][]Config{
		"Key":            {{}, {Key: strings.Repeat("k", 513)}, {Key: "\xff"}, {Key: "a\nb"}, {Key: "\x7f"}, {Key: "\u0085"}},
		"Lease":          {{Lease: 499 * time.Millisecond}, {Lease: 25 * time.Hour}, {Lease: -1}},
		"Renewal":        {{Renewal: -1}, {Renewal: 15*time.Second + 1}, {Renewal: time.Microsecond}},
		"WatchdogPeriod": {{WatchdogPeriod: 99 * time.Millisecond}, {WatchdogPeriod: -1}},
		"MaxHold":        {{MaxHold: -1}},
		"AtLeast":        {{AtLeast: -1}, {AtLeast: 31 * time.Second}},
		"BeatTimeout":    {{BeatTimeout: -1}},
		"Recovery":       {{Recovery: "reacquire"}},
		"AlertThreshold": {{AlertThreshold: -1}},
		"Margin":         {{Margin: 9 * time.Millisecond}, {Margin: 8 * time.Second}},
	} {
		for _, c := range bad {
			if field != "Key" {
				c.Key = strings.Repeat("é{}* ", 73)
			}
			checkFields(t, c.WithDefaults().Validate(), field)
		}
	}
	// All of them at once.
	checkFields(t, Config{Lease: -1, MaxHold: -1, BeatTimeout: -1, Recovery: "x", AlertThreshold: -1, WatchdogPeriod: -1, AtLeast: -1}.WithDefaults().Validate(),
		"Key", "Lease", "WatchdogPeriod", "MaxHold", "BeatTimeout", "AtLeast", "Recovery", "AlertThreshold")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	const url = "redis://localhost:6379"
	o := Options{RedisURL: url}.WithDefaults()
	if err := o.Validate(); err != nil || o.KeyPrefix != "lock" || o.Liveness != time.Second || !strings.Contains(o.Holder, ":") || o.ReplicationTimeout != time.Second {
		t.Errorf(`%+v: %v; want no error, o.KeyPrefix == "lock", o.Liveness == time.Second, strings.Contains(o.Holder, ":"), o.ReplicationTimeout == time.Second`, o, err)
	}
	for field, bad := range map[string][]Options{
		"RedisURL":           {{RedisURL: "x"}, {RedisURL: "http://localhost"}},
		"Liveness":           {{Liveness: 199 * time.Millisecond}, {Liveness: time.Minute + 1}},
		"Holder":             {{Holder: strings.Repeat("h", 129)}, {Holder: "a\tb"}, {Holder: "\xff"}},
		"KeyPrefix":          {{KeyPrefix: "a{b}"}, {KeyPrefix: "a\n"}},
		"Replicas":           {{Replicas: -1}, {Replicas: 17}},
		"ReplicationTimeout": {{ReplicationTimeout: -1}, {ReplicationTimeout: time.Hour}},
	} {
		for _, o := range bad {
			if o.RedisURL == "" {
				o.RedisURL = url
			}
			checkFields(t, o.WithDefaults().Validate(), field)
			if _, err := New(o); err == nil {
				t.Errorf("New takes a bad %s", field)
			}
		}
	}
}

// checkFields fails unless err names these fields and no others.
func checkFields(t *testing.T, err error, fields ...string) {
	t.Helper()
	var coded *freeslot.Error
	if !errors.As(err, &coded) || len(coded.Errors) != len(fields) {
		t.Errorf("%v, expected errors about %v", err, fields)
		return
	}
	for i, f := range coded.Errors {
		if f.Field != fields[i] || f.Message == "" {
			t.Errorf("%+v, expected one about %s", f, fields[i])
		}
	}
}

// FuzzKey: a name that is taken names keys of its own, is whole in messages, and is JSON in
// notices.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "user:profile:1001", "a b", "{x}", "\"\\\u2028", "\xff", "\x00", "é", strings.Repeat("x", 513)} {
		f.Add(s)
	}
	both := []keys{{layout: layouts("p", false)[0]}, {layout: layouts("p", true)[3]}}
	f.Fuzz(func(t *testing.T, key string) {
		err := Config{Key: key}.WithDefaults().Validate()
		bad := key == "" || len(key) > 512 || !utf8.ValidString(key)
		for _, c := range key {
			bad = bad || c < 0x20 || c >= 0x7f && c < 0xa0
		}
		if (err != nil) != bad {
			t.Fatalf("%q: %v; want (err != nil) == %v", key, err, bad)
		}
		if bad {
			return
		}
		var back string
		if err := json.Unmarshal([]byte(quoted(key)), &back); err != nil || back != key {
			t.Errorf("%q is quoted as %s: %v", key, quoted(key), err)
		}
		for _, k := range both {
			if !strings.HasSuffix(k.held(key), ":"+key) || k.held(key) == k.queue(key) || k.held(key) == k.held(key+"x") {
				t.Errorf("%q names %q and %q", key, k.held(key), k.queue(key))
			}
		}
		if n, token, ok := parseWake("7 12345 " + key); !ok || n != 7 || token != 12345 {
			t.Errorf("%q: %d, %d, %v; want ok, n == 7, token == 12345", key, n, token, ok)
		}
	})
}

// FuzzWake: whatever is published on a wake channel is read as a grant or refused.
func FuzzWake(f *testing.F) {
	for _, s := range []string{"", "1 2 k", "1 2", "1", "-1 2 k", "1 x k", "18446744073709551616 1 k", "1 9223372036854775808 k", "1  2 k", " 1 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, message string) {
		number, token, ok := parseWake(message)
		if !ok {
			return
		}
		words := strings.SplitN(message, " ", 3)
		if n, err := strconv.ParseUint(words[0], 10, 64); err != nil || n != number {
			t.Errorf("%q: number %d", message, number)
		}
		if n, err := strconv.ParseInt(words[1], 10, 64); err != nil || n != token {
			t.Errorf("%q: token %d", message, token)
		}
	})
}
