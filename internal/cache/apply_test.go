package cache

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/freeslot/freeslot"
)

// Every field of a profile counts, those that are added later included.
func TestSameProfile(t *testing.T) {
	t.Parallel()
	whole := `{"node_id":"a","max_concurrency":2,"installed_services":[{"name":"s","version":"1"}],` +
		`"capabilities":{"asr_languages":["de"],"tts_languages":["de"],"semantic_languages":["de"]},` +
		`"pool_ids":["p"],"labels":{"l":"v"},"features_supported":{"f":true}}`
	parse := func() *freeslot.Node {
		n := new(freeslot.Node)
		if err := json.Unmarshal([]byte(whole), n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if !sameProfile(parse(), parse()) {
		t.Error("a profile differs from itself")
	}
	if sameProfile(parse(), new(freeslot.Node)) {
		t.Error("no profile is like an empty one")
	}
	leaves := 0
	// change walks to the n-th leaf and makes it empty; false when there are fewer.
	var change func(v reflect.Value, n *int) bool
	change = func(v reflect.Value, n *int) bool {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				if change(v.Field(i), n) {
					return true
				}
			}
			return false
		}
		if *n--; *n >= 0 {
			return false
		}
		if v.IsZero() {
			t.Fatalf("a field of %s is not in this test's profile", v.Type())
		}
		v.SetZero()
		return true
	}
	for ; ; leaves++ {
		n, other := leaves, parse()
		if !change(reflect.ValueOf(other).Elem(), &n) {
			break
		}
		if sameProfile(parse(), other) {
			t.Errorf("%+v is taken for the same", *other)
		}
	}
	if leaves < 8 {
		t.Errorf("%d fields", leaves)
	}
	version := parse()
	version.Services[0].Version = "2"
	if sameProfile(parse(), version) {
		t.Error("another version is taken for the same")
	}
}
