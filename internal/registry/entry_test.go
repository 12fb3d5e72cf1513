package registry

import "testing"

// TestGuardText: the note of a guard, as the script writes it, ends with a time; others stay.
func TestGuardText(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{
		"": "",
		"4 of 10 instances fell silent or failed their checks together: none of them is removed before 1764295200123 (ms since 1970)": "4 of 10 instances fell silent or failed their checks together: none of them is removed before 2025-11-28T02:00:00Z",
		"before 99999999999999999999 (ms since 1970)": "before 99999999999999999999 (ms since 1970)",
		"before 7": "before 7",
	} {
		if got := guardText(note); got != want {
			t.Errorf("%q is shown as %q, expected %q", note, got, want)
		}
	}
}
