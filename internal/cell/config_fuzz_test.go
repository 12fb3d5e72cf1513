package cell

import "testing"

// FuzzConfigEntry: what an operator wrote into the history is read or left out.
func FuzzConfigEntry(f *testing.F) {
	f.Add("7:meta", `{"version":7,"author":"a","note":"n","restores":3,"at_ms":1}`)
	f.Add("0:meta", `{}`)
	f.Add("99999999999999999999:meta", `{"version":-1}`)
	f.Add(":meta", `[]`)
	f.Fuzz(func(t *testing.T, field, text string) {
		if !isMetaField(field) {
			return
		}
		entry, ok := decodeConfigEntry(field, text)
		if ok && entry.Version == 0 {
			t.Errorf("%q %q gives version 0", field, text)
		}
	})
}
