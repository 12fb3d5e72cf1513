// asynq as a peer of the benchmark, in a module of its own: the product does not depend on it.
module github.com/freeslot/freeslot/bench/peers/asynq

go 1.26.0

require (
	github.com/freeslot/freeslot/bench v0.0.0
	github.com/google/uuid v1.6.0
	github.com/hibiken/asynq v0.26.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/freeslot/freeslot v0.0.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	github.com/spf13/cast v1.10.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.14.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace (
	github.com/freeslot/freeslot => ../../..
	github.com/freeslot/freeslot/bench => ../..
)
