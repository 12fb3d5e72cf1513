package pool

import (
	"testing"

	"github.com/freeslot/freeslot/internal/redis/redistest"
	"github.com/freeslot/freeslot/internal/script/scripttest"
)

func TestMain(m *testing.M) {
	scripttest.Guard(scripts)
	redistest.Main(m)
}
