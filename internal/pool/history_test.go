package pool

import (
	"strings"
	"testing"
)

// FuzzEntry: what an operator wrote into the history is read or left out.
func FuzzEntry(f *testing.F) {
	f.Add("7:meta", `{"version":7,"author":"a","note":"n","restores":3,"at_ms":1}`)
	f.Add("0:meta", `{}`)
	f.Add("99999999999999999999:meta", `{"version":-1}`)
	f.Add(":meta", `[]`)
	f.Fuzz(func(t *testing.T, field, text string) {
		if !strings.HasSuffix(field, metaSuffix) {
			return
		}
		entry, ok := decodeEntry(field, text)
		if ok && entry.Version == 0 {
			t.Errorf("%q %q gives version 0", field, text)
		}
	})
}
