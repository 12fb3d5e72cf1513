package redistest

import (
	"context"
	"testing"
)

// Age makes a system that is about to be created look old. versions are the names of its cells'
// version:nodes keys. A new system does not know yet which nodes it has, so it refuses no job for
// good.
func (r *Target) Age(tb testing.TB, versions ...string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	client := r.Client(tb)
	for _, key := range versions {
		fields := client.B().Hset().Key(key).FieldValue().FieldValue("generation", "old").FieldValue("revision", "1")
		if err := client.Do(ctx, fields.Build()).Error(); err != nil {
			tb.Fatal(err)
		}
	}
}
