package registry

import (
	"time"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/registry"
)

type (
	// Naming is a provider and a consumer that share their connections. It has the methods of both.
	Naming = registry.Naming
	// NamingOptions configures a Naming. Only RedisURL is required.
	NamingOptions = registry.NamingOptions

	// Provider registers instances and keeps them registered. Methods:
	//
	//	Start(ctx) error                                 connects, now or when Redis comes; ctx bounds the start alone
	//	Stop(ctx) error                                  marks the instances as draining, pauses, and deregisters them
	//	Running() bool
	//	Register(ctx, Registration) error                keeps an instance registered until Deregister or Stop
	//	Deregister(ctx, service, id) error
	//	Heartbeat(ctx, service, id) error                sends one at once; they are sent without it, too
	//	HeartbeatAll(ctx) ([]HeartbeatResult, error)
	//	Status() []InstanceStatus
	Provider = registry.Provider
	// Options configures a Provider. Only RedisURL is required.
	Options = registry.Options
	// Registration describes one of a provider's instances.
	Registration = registry.Registration
	// Check says how replicas of the scheduler check an instance from outside.
	Check = registry.Check
	// Milliseconds is a duration that JSON writes as a number of milliseconds.
	Milliseconds = registry.Milliseconds
	// HeartbeatResult is the outcome of one heartbeat of HeartbeatAll.
	HeartbeatResult = registry.HeartbeatResult
	// InstanceStatus is the state of one of a provider's instances.
	InstanceStatus = registry.InstanceStatus
	// HolderError says which provider has an instance's id.
	HolderError = registry.HolderError
	// DeniedError says that Redis denies its user a call, and which command prints the needed
	// rights.
	DeniedError = registry.DeniedError

	// Consumer follows services. Methods:
	//
	//	Start(ctx) error                                               connects; ctx bounds the start alone
	//	Stop(ctx) error
	//	Running() bool
	//	AllInstances(ctx, service) (*List, error)                      at once if it follows the service; otherwise it starts to follow it
	//	HealthyInstances(ctx, service, ...ReadOption) (*List, error)   the instances that should get traffic
	//	Query(ctx, service, *Filter, cursor) ([]*Instance, next, error)   a page of the instances that a filter selects, from Redis; "0" begins and ends
	//	Subscribe(service, func(*List)) (*Listener, error)             calls with each new list, one call after the other
	//	Unsubscribe(service, ...*Listener) error                       ends these Subscribes, or all, with reads; pickers, transports and resolvers go on
	//	Document(ctx, name) (Document, error)                          reads a configuration document
	//	WatchDocument(name, func(Document)) (stop func(), err error)   calls with it, and with each new version
	//	PutDocument(ctx, name, seen, content, author, note) (version int64, err error)   writes one made from the version seen
	//	AwaitDocument(ctx, name, known) (Document, error)              waits for another version than known
	Consumer = registry.Consumer
	// ConsumerOptions configures a Consumer. Only RedisURL is required.
	ConsumerOptions = registry.ConsumerOptions
	// Listener is one call of Subscribe, for Unsubscribe.
	Listener = registry.Listener
	// ReadOption changes one read.
	ReadOption = registry.ReadOption

	// List is the instances of a service, with how far they can be trusted. Methods:
	//
	//	Healthy() *List         the instances that should get traffic; late ones if no other is left
	//	Match(*Filter) *List    the instances that a filter selects
	List = registry.List
	// Instance is one instance of a List. Methods:
	//
	//	Healthy() bool   whether it should get traffic
	Instance = registry.Instance
	// Override holds what an operator has set for an instance.
	Override = registry.Override
	// Document is a named configuration document. A zero Version means that there is none.
	Document = registry.Document
	// DocumentVersion describes a version of a document.
	DocumentVersion = registry.DocumentVersion
	// State says how far a list can be trusted.
	State = registry.State

	// Access says how the process proves its identity to Redis, and how the servers prove theirs.
	Access = redisclient.Access
	// TLS holds the TLS settings that a rediss:// URL cannot express.
	TLS = redisclient.TLS
)

// The states of a list.
const (
	StateLive       = registry.StateLive
	StateStale      = registry.StateStale
	StateRebuilding = registry.StateRebuilding
	StateProtected  = registry.StateProtected
	StateDisk       = registry.StateDisk
	StateEmpty      = registry.StateEmpty
)

// MaxDocument is the longest content of a document, in bytes.
const MaxDocument = registry.MaxDocument

// The reasons of empty lists.
const (
	WhyDeregistered    = registry.WhyDeregistered
	WhyExpired         = registry.WhyExpired
	WhyRemoved         = registry.WhyRemoved
	WhyNeverRegistered = registry.WhyNeverRegistered
	WhyNoneHealthy     = registry.WhyNoneHealthy
	WhyNoneMatches     = registry.WhyNoneMatches
)

// Errors returned by calls.
var (
	// ErrUnknown is returned when Redis does not have the instance.
	ErrUnknown = registry.ErrUnknown
	// ErrSuperseded is returned when another provider has taken the instance over.
	ErrSuperseded = registry.ErrSuperseded
	// ErrClosed is returned by calls after Stop.
	ErrClosed = registry.ErrClosed
	// ErrNotStarted is returned by calls before Start.
	ErrNotStarted = registry.ErrNotStarted
	// ErrNotSubscribed is returned for a service that the consumer does not follow.
	ErrNotSubscribed = registry.ErrNotSubscribed
)

// NewNaming makes a Naming. It does no I/O. Errors: a *freeslot.Error that names every bad option.
func NewNaming(opts NamingOptions) (*Naming, error) { return registry.NewNaming(opts) }

// NewProvider makes a provider. It does no I/O. Errors: a *freeslot.Error that names every bad
// option.
func NewProvider(opts Options) (*Provider, error) { return registry.NewProvider(opts) }

// NewConsumer makes a consumer. It does no I/O. Errors: a *freeslot.Error that names every bad
// option.
func NewConsumer(opts ConsumerOptions) (*Consumer, error) { return registry.NewConsumer(opts) }

// WithTimeout uses this timeout to judge lateness in one read, which then asks Redis.
func WithTimeout(t time.Duration) ReadOption { return registry.WithTimeout(t) }
