// The tests of the real programs, in a module of their own so that a plain `go test ./...` stays quick and
// needs no Node.js. Run them with: make e2e
module github.com/freeslot/freeslot/test/e2e

go 1.26.0

require (
	github.com/freeslot/freeslot v0.0.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/cenkalti/backoff/v5 v5.0.3 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coder/websocket v1.8.15 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/freeslot/freeslot => ../..
