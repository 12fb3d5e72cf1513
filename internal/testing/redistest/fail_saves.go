package redistest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redis/rueidis"
)

// FailSaves makes a server refuse writes as MISCONF, because it cannot save its data: its folder is
// gone. undo makes it take writes again.
func FailSaves(tb testing.TB, server *Server) (undo func()) {
	tb.Helper()
	do := func(args ...string) rueidis.RedisResult {
		tb.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		answer := Ask(ctx, server.Addrs()[0], args...)
		if err := answer.Error(); err != nil {
			tb.Fatalf("%v: %v", args, err)
		}
		return answer
	}
	do("CONFIG", "SET", "save", "3600 1")
	config, err := do("CONFIG", "GET", "dir").AsStrMap()
	if err != nil || config["dir"] == "" {
		tb.Fatalf("the folder of the server: %v, %v", config, err)
	}
	if err := os.RemoveAll(config["dir"]); err != nil {
		tb.Fatal(err)
	}
	do("BGSAVE")
	failed := func(ctx context.Context) bool {
		info, err := Ask(ctx, server.Addrs()[0], "INFO", "persistence").ToString()
		return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
	}
	if err := Await(failed); err != nil {
		tb.Fatalf("waited for a save to fail: %v", err)
	}
	return func() { do("CONFIG", "SET", "save", "") }
}
