package client

import (
	"testing"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
