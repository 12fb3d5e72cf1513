package events

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/redistest"
)

// lateRefresh is where rueidis' cluster client waits for up to a second before it
// asks for the topology, even when the client was closed meanwhile.
const lateRefresh = "github.com/redis/rueidis.(*call).DelayDo.func1"

func TestMain(m *testing.M) { redistest.Main(m, goleak.IgnoreAnyFunction(lateRefresh)) }
