package registry

import (
	"time"

	redisclient "github.com/freeslot/freeslot/internal/redis/client"
	"github.com/freeslot/freeslot/internal/registry"
)

type (
	// Naming is a provider and a consumer on the same connections. Methods: those of both.
	Naming = registry.Naming
	// NamingOptions is how a Naming works. Only RedisURL is needed.
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
	// Options is how a Provider works. Only RedisURL is needed.
	Options = registry.Options
	// Registration is what a provider says of one of its instances.
	Registration = registry.Registration
	// Check is how replicas of the scheduler check an instance from outside.
	Check = registry.Check
	// Milliseconds is a duration that is a number of milliseconds in JSON.
	Milliseconds = registry.Milliseconds
	// HeartbeatResult is what became of one heartbeat of HeartbeatAll.
	HeartbeatResult = registry.HeartbeatResult
	// InstanceStatus is how an instance of a provider stands.
	InstanceStatus = registry.InstanceStatus
	// HolderError says who has an instance's id.
	HolderError = registry.HolderError
	// DeniedError says that Redis denies its user a call, and which command prints the rights.
	DeniedError = registry.DeniedError

	// Consumer follows services. Methods:
	//
	//	Start(ctx) error                                               connects; ctx bounds the start alone
	//	Stop(ctx) error
	//	Running() bool
	//	AllInstances(ctx, service) (*List, error)                      at once for a service that is followed; else it follows it
	//	HealthyInstances(ctx, service, ...ReadOption) (*List, error)   those that should get traffic
	//	Query(ctx, service, *Filter, cursor) ([]*Instance, next, error)   a page of those that a filter takes, from Redis; "0" begins and ends
	//	Subscribe(service, func(*List)) (*Listener, error)             calls with each new list, one call after the other
	//	Unsubscribe(service, ...*Listener) error                       ends these Subscribes, or all and reads; pickers, transports and resolvers go on
	//	Document(ctx, name) (Document, error)                          reads a configuration document
	//	WatchDocument(name, func(Document)) (stop func(), err error)   calls with it, and with each new version
	//	PutDocument(ctx, name, seen, content, author, note) (version int64, err error)   writes one made from the version seen
	//	AwaitDocument(ctx, name, known) (Document, error)              waits for another version than known
	Consumer = registry.Consumer
	// ConsumerOptions is how a Consumer works. Only RedisURL is needed.
	ConsumerOptions = registry.ConsumerOptions
	// Listener is one Subscribe, for Unsubscribe.
	Listener = registry.Listener
	// ReadOption changes one read.
	ReadOption = registry.ReadOption

	// List is the instances of a service, with how far they can be trusted. Methods:
	//
	//	Healthy() *List         those that should get traffic; late ones where no other one is left
	//	Match(*Filter) *List    those that a filter takes
	List = registry.List
	// Instance is one instance of a List. Methods:
	//
	//	Healthy() bool   whether it should get traffic
	Instance = registry.Instance
	// Override is what an operator has set for an instance.
	Override = registry.Override
	// Document is a named configuration document. Its zero Version says that there is none.
	Document = registry.Document
	// DocumentVersion says how a version of a document came to be.
	DocumentVersion = registry.DocumentVersion
	// State says how far a list can be trusted.
	State = registry.State

	// Access is who the process is to Redis, and how the servers prove who they are.
	Access = redisclient.Access
	// TLS is what a rediss:// URL leaves open.
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

// Errors of calls.
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

// WithTimeout judges lateness by this time for one read, which asks Redis.
func WithTimeout(t time.Duration) ReadOption { return registry.WithTimeout(t) }
