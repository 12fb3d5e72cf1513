package script

import "testing"

// TestScriptConstants: where a constant was named its number stands, and nothing else is changed.
func TestScriptConstants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"local MOST = 16 -- of them\nlocal MOST_BACK = 2\nreturn MOST * MOST_BACK .. 'ALMOST'\n": "return 16 * 2 .. 'ALMOST'\n",
		"local TEXTS = {'job'}\nlocal PREFIX, TAG = ARGV[1], ARGV[2]\n":                          "local TEXTS = {'job'}\nlocal PREFIX, TAG = ARGV[1], ARGV[2]\n",
	} {
		if got := literal(text); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
