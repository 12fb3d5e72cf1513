package selection

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update rewrites the expectations of testdata/*.txt:
//
//	go test ./internal/selection -run Scenario -update
var update = flag.Bool("update", false, "rewrite the expected lines of the scenarios")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
