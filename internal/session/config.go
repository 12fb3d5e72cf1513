package session

import (
	"cmp"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// Defaults of Config.
const (
	DefaultMaxBatch        = 1000
	DefaultMaxFrameBytes   = 8 << 20
	DefaultMaxSessions     = 10_000
	DefaultMaxJobs         = 10_000
	DefaultMaxRequests     = 64
	DefaultMaxRequestBytes = 16 << 20
	DefaultQueueMessages   = 16 << 10
	DefaultQueueBytes      = 16 << 20
	DefaultPingInterval    = 20 * time.Second
	DefaultPingTimeout     = 10 * time.Second
	DefaultWriteTimeout    = 10 * time.Second
	DefaultCloseTimeout    = 5 * time.Second
	DefaultDrainGrace      = time.Second

	// envelopeBytes is room for a submit without its payload.
	envelopeBytes = 64 << 10
	// unsentBytes is how much the kernel accepts before it can send it, and arrayBytes about the
	// largest frame of several messages: large enough to spare calls, small enough that a client
	// soon has the first message.
	unsentBytes = 256 << 10
	arrayBytes  = 256 << 10
	// messagesPerJob is the number of messages that one submitted job makes: accepted, assigned and
	// result. A job with retries makes more, spread over the time of its attempts.
	messagesPerJob = 3
)

// Config names and bounds the sessions of a replica. The zero value of each field means its
// default.
//
// A session holds at most MaxRequestBytes of requests, one frame that is being read, QueueBytes of
// messages, and the answers to a few attaches and cancels that wait for room there. A client must
// send, or leave unread, what it makes the replica hold.
type Config struct {
	// Replica and Version are part of the welcome message.
	Replica string
	Version string

	// MaxPayloadBytes is the largest payload of one job.
	MaxPayloadBytes int
	// MaxBatch is the largest number of jobs in one frame.
	MaxBatch int
	// MaxFrameBytes is the size of the largest frame that a client may send. If need be, it is
	// raised to the size of a job with the largest payload.
	MaxFrameBytes int

	// MaxSessions is the largest number of sessions at a time. Further ones are refused.
	MaxSessions int
	// MaxTenantSessions is the largest number of one tenant; 0 means MaxSessions.
	MaxTenantSessions int
	// MaxJobs is the largest number of jobs of one session that have no result yet. Further ones
	// are refused as overloaded.
	MaxJobs int
	// MaxRequests and MaxRequestBytes bound the requests of one session under way, by number and by
	// the size of their frames. At a bound the session stops reading. If no request is under way,
	// it reads any frame.
	MaxRequests     int
	MaxRequestBytes int
	// QueueMessages and QueueBytes bound what waits for a client to read it. If they overflow, the
	// session ends. Past half of either, the session stops reading and answers no attach and no
	// cancel. So only answers to submits that were read already, and news about jobs, can overflow
	// them. QueueMessages must hold all messages of one batch. A single message may be larger than
	// QueueBytes.
	QueueMessages int
	QueueBytes    int

	// PingInterval is how often a client is pinged, PingTimeout how long it may take to answer. A
	// client that sends bytes is alive.
	PingInterval time.Duration
	PingTimeout  time.Duration
	// WriteTimeout bounds the writing of one frame.
	WriteTimeout time.Duration
	// CloseTimeout bounds the end of a session, including the delivery of the queue.
	CloseTimeout time.Duration
	// DrainGrace is how long a drained session without jobs waits for the client to leave before it
	// is closed. Meanwhile it refuses late requests.
	DrainGrace time.Duration

	// AllowedOrigins are the web origins ("https://app.example.com"), in addition to the replica's
	// own, whose pages may connect.
	AllowedOrigins []string

	// Audit records cancels by others than clients; nil leaves that out.
	Audit *audit.Log
	// TracerProvider makes a server span of each submitted job; nil makes none.
	TracerProvider trace.TracerProvider
}

// WithDefaults returns c with zero fields replaced.
func (c Config) WithDefaults() Config {
	c.MaxPayloadBytes = cmp.Or(c.MaxPayloadBytes, freeslot.DefaultMaxPayloadBytes)
	c.MaxBatch = cmp.Or(c.MaxBatch, DefaultMaxBatch)
	c.MaxFrameBytes = max(cmp.Or(c.MaxFrameBytes, DefaultMaxFrameBytes), c.MaxPayloadBytes+envelopeBytes)
	c.MaxSessions = cmp.Or(c.MaxSessions, DefaultMaxSessions)
	c.MaxTenantSessions = cmp.Or(c.MaxTenantSessions, c.MaxSessions)
	c.MaxJobs = cmp.Or(c.MaxJobs, DefaultMaxJobs)
	c.MaxRequests = cmp.Or(c.MaxRequests, DefaultMaxRequests)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, DefaultMaxRequestBytes)
	c.QueueMessages = cmp.Or(c.QueueMessages, DefaultQueueMessages)
	c.QueueBytes = cmp.Or(c.QueueBytes, DefaultQueueBytes)
	c.PingInterval = cmp.Or(c.PingInterval, DefaultPingInterval)
	c.PingTimeout = cmp.Or(c.PingTimeout, DefaultPingTimeout)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, DefaultWriteTimeout)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, DefaultCloseTimeout)
	c.DrainGrace = cmp.Or(c.DrainGrace, DefaultDrainGrace)
	return c
}

// Validate names the first bad field.
func (c Config) Validate() error {
	for _, bound := range []struct {
		name  string
		value int
	}{
		{"max_payload_bytes", c.MaxPayloadBytes},
		{"max_batch", c.MaxBatch},
		{"max_frame_bytes", c.MaxFrameBytes},
		{"max_sessions", c.MaxSessions},
		{"max_jobs", c.MaxJobs},
		{"max_requests", c.MaxRequests},
		{"max_request_bytes", c.MaxRequestBytes},
		{"queue_messages", c.QueueMessages},
		{"queue_bytes", c.QueueBytes},
	} {
		if bound.value < 1 {
			return fmt.Errorf("%s is %d, expected at least 1", bound.name, bound.value)
		}
	}
	if need := messagesPerJob * c.MaxBatch; c.QueueMessages < need {
		return fmt.Errorf("queue_messages is %d, expected at least %d: %d messages for each job of a batch of %d",
			c.QueueMessages, need, messagesPerJob, c.MaxBatch)
	}
	for _, bound := range []struct {
		name  string
		value time.Duration
	}{
		{"ping_interval", c.PingInterval},
		{"ping_timeout", c.PingTimeout},
		{"write_timeout", c.WriteTimeout},
		{"close_timeout", c.CloseTimeout},
		{"drain_grace", c.DrainGrace},
	} {
		if bound.value < time.Millisecond {
			return fmt.Errorf("%s is %s, expected at least 1ms", bound.name, bound.value)
		}
	}
	return nil
}

func (c Config) limits() wire.Limits {
	return wire.Limits{MaxPayloadBytes: c.MaxPayloadBytes, MaxBatch: c.MaxBatch, MaxFrameBytes: c.MaxFrameBytes}
}

func (c Config) socket(m *metrics) socket.Config {
	return socket.Config{
		Protocol: wire.Protocol, MaxFrameBytes: c.MaxFrameBytes,
		QueueMessages: c.QueueMessages, QueueBytes: c.QueueBytes, UnsentBytes: unsentBytes,
		PingTimeout: c.PingTimeout, WriteTimeout: c.WriteTimeout, CloseTimeout: c.CloseTimeout,
		Slow:   socket.Order{Code: wire.CloseSlowClient, Text: "the client does not read fast enough", Label: closedSlow},
		Closed: closedByClient, Lost: closedLost,
		FramesIn: m.framesIn, FramesOut: m.framesOut, BytesIn: m.bytesIn, BytesOut: m.bytesOut,
	}
}
