package freeslot_test

import (
	"regexp"
	"strings"
	"testing"
)

// bareMessage matches a failure that shows figures and says nothing about what was expected.
var bareMessage = regexp.MustCompile(`\.(Errorf|Fatalf)\("(%[-+#.0-9]*[a-z]|[^"a-z%])*"`)

// A failure of a test says what was expected. Those that do not are older, and become fewer.
func TestFailuresSayWhatWasExpected(t *testing.T) {
	t.Parallel()
	const most = 68
	found := 0
	for _, file := range treeFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			found += len(bareMessage.FindAllString(readPage(t, file), -1))
		}
	}
	if found > most {
		t.Errorf("%d failures do not say what was expected, expected at most %d: write t.Errorf(\"got %%v; want …\", got)",
			found, most)
	}
}
