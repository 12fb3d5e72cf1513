package server

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	startLimit = 2 * time.Minute
	binaryEnv  = "FREESLOT_TEST_REDIS_SERVER"
	// orphanEnv makes the test binary a parent that starts a server and waits to be killed.
	orphanEnv = "FREESLOT_TEST_ORPHAN"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphanEnv) != "" {
		runParent()
	}
	goleak.VerifyTestMain(m)
}

func runParent() {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	srv := New(Config{Binary: os.Getenv(binaryEnv)})
	if err := srv.Start(ctx); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(srv.Addr(), srv.Dir())
	select {}
}
