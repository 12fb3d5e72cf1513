package gateway_test

import (
	"testing"

	"github.com/freeslot/freeslot/internal/redis/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
