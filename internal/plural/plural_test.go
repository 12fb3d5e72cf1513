package plural

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 ids", 1: "1 id", 2: "2 ids", -1: "-1 ids"} {
		if got := Of(n, "id", "ids"); got != want {
			t.Errorf("of %d it is %q, expected %q", n, got, want)
		}
	}
}
