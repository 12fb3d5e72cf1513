package frame

import (
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/schematest"
	"github.com/freeslot/freeslot/internal/wire"
)

// agentMessages are the messages of an agent.
var agentMessages = []schematest.Message{
	{Name: "HelloMessage", Type: "hello", Doc: "The first message of a session.", Fields: "node epoch connection version? check?"},
	{Name: "RegisterMessage", Type: "register", Doc: "The node's whole profile.", Fields: "id profile replaces?"},
	{
		Name: "HeartbeatMessage", Type: "heartbeat", Fields: "id status? running? resources? now?",
		Doc: "Proves that the node lives, and compares what it runs with what it owns.",
	},
	{Name: "CompleteMessage", Type: "complete", Doc: "Ends an attempt.", Fields: "id? attempt state result? error? next? retry_delay_ms?"},
	{Name: "ProgressMessage", Type: "progress", Doc: "Reports how far attempts are.", Fields: "id reports"},
	{Name: "SpecMessage", Type: "spec", Doc: "Reads the job of an attempt that came without it.", Fields: "id? job_id"},
	{Name: "DeregisterMessage", Type: "deregister", Doc: "Takes the node out; its jobs wait for another node.", Fields: "id"},
}

// gatewayMessages are the messages of a gateway.
var gatewayMessages = []schematest.Message{
	{
		Name: "WelcomeMessage", Type: "welcome", Doc: "The answer to hello.",
		Fields: "protocol session replica version heartbeat_limit_ms max_frame_bytes inline_bytes max_requests max_slots max_attempts replaces? in_use? allows",
	},
	{Name: "RegisteredMessage", Type: "registered", Doc: "The answer to register.", Fields: "id lost?"},
	{Name: "BeatMessage", Type: "beat", Doc: "The answer to heartbeat.", Fields: "id start? stop? cancel?"},
	{Name: "CompletedMessage", Type: "completed", Doc: "The answer to complete; without id, to one by HTTP.", Fields: "id? outcome begun?"},
	{Name: "ProgressedMessage", Type: "progressed", Doc: "The answer to progress.", Fields: "id outcomes"},
	{Name: "SpecAnswerMessage", Type: "spec", Doc: "The answer to spec; without id, to one by HTTP.", Fields: "id? tenant? job? large?"},
	{Name: "DeregisteredMessage", Type: "deregistered", Doc: "The answer to deregister.", Fields: "id lost?"},
	{Name: "JobsMessage", Type: "jobs", Doc: "Attempts that begin on the node.", Fields: "jobs"},
	{Name: "CancelMessage", Type: "cancel", Doc: "A client asked to cancel these attempts.", Fields: "attempts"},
	{Name: "SyncMessage", Type: "sync", Doc: "Send a heartbeat at once."},
	{Name: "GoawayMessage", Type: "goaway", Doc: "The replica stops; connect to another address, then close this connection.", Fields: "reason?"},
	{Name: "ErrorMessage", Type: "error", Doc: "A request was refused; without id, the session ends.", Fields: "id? code message field? retry_after_ms?"},
}

const attemptPattern = "^[^:]+:[1-9][0-9]*$"

func attemptText(s *huma.Schema) { s.Pattern = attemptPattern }

// messageFields describes the fields of messages, and of the types that only this protocol has.
func messageFields(t *testing.T) map[string]schematest.Field {
	id, positive, attempts := schematest.Length(1, 64), schematest.Min(1), schematest.Items(0, 0, attemptText)
	codeList := schematest.Enum(codes(t)...)
	return map[string]schematest.Field{
		"id":                      {Doc: "Of a request, repeated in its answer. The agent gives no two requests under way the same one.", Bound: positive},
		"node":                    {Doc: "The node's id.", Bound: schematest.Name},
		"epoch":                   {Doc: "Names this start of the agent; a new one for each.", Bound: schematest.Name},
		"CompleteMessage.id":      {Doc: "Of the request, repeated in its answer; always sent in a frame, absent by HTTP.", Bound: positive},
		"SpecMessage.id":          {Doc: "Of the request, repeated in its answer; always sent in a frame, absent by HTTP.", Bound: positive},
		"connection":              {Doc: "Counts the dials of this epoch, from 1.", Bound: positive},
		"version":                 {Doc: "The agent's release."},
		"check":                   {Doc: "Only asks what the token may do; no session begins."},
		"profile":                 {Doc: "What the node can do. Its node_id is ignored."},
		"replaces":                {Doc: "The epoch that the welcome named; absent where it named none."},
		"status":                  {Doc: "Whether the node takes new jobs; absent, the last one stays.", Bound: schematest.Enum(freeslot.StatusOnline, freeslot.StatusDraining)},
		"running":                 {Doc: "The attempts that the node runs, at most max_attempts.", Bound: attempts},
		"resources":               {Doc: "Figures of the machine, an object of at most 16 KiB; absent, the last ones stay."},
		"now":                     {Doc: "It must not wait to share a call."},
		"attempt":                 {Doc: "The attempt that ends: its job's id, a colon and a number from 1.", Bound: attemptText},
		"state":                   {Doc: "How it ended.", Bound: schematest.Enum(freeslot.StateSucceeded, freeslot.StateFailed, freeslot.StateCancelled)},
		"result":                  {Doc: "Any JSON value of at most inline_bytes; a larger one goes by HTTP."},
		"error":                   {Doc: "Why it failed."},
		"next":                    {Doc: "Of a failed attempt: whether the job is tried again; absent ends the job.", Bound: schematest.Enum(NextRetry, NextHandBack)},
		"retry_delay_ms":          {Doc: "With retry: how long the next attempt waits, at most a year.", Bound: schematest.Min(0)},
		"reports":                 {Doc: "1 to 64 reports.", Bound: schematest.Items(1, 64, nil)},
		"job_id":                  {Doc: "The job's id.", Bound: id},
		"protocol":                {Doc: "The subprotocol.", Bound: schematest.Const(Protocol)},
		"session":                 {Doc: "The name of the session; requests by HTTP repeat it in the header " + SessionHeader + "."},
		"replica":                 {Doc: "The replica's name."},
		"heartbeat_limit_ms":      {Doc: "A node that is silent for longer is taken out.", Bound: positive},
		"max_frame_bytes":         {Doc: "The largest frame that the gateway reads.", Bound: positive},
		"inline_bytes":            {Doc: "The largest result or job in a frame.", Bound: positive},
		"max_requests":            {Doc: "The most requests under way.", Bound: positive},
		"max_slots":               {Doc: "The most slots of a node.", Bound: positive},
		"max_attempts":            {Doc: "The most attempts that a heartbeat names.", Bound: positive},
		"in_use":                  {Doc: "The node lives under another token or as a direct agent."},
		"allows":                  {Doc: "What the token may do."},
		"lost":                    {Doc: "Ids of jobs that the node owned and does not own any more.", Bound: schematest.Items(0, 0, id)},
		"start":                   {Doc: "Attempts that the node owns and did not name: ask for their spec, and run them.", Bound: attempts},
		"stop":                    {Doc: "Attempts that the node named and does not own: stop them.", Bound: attempts},
		"cancel":                  {Doc: "Attempts that a client asked to cancel.", Bound: attempts},
		"outcome":                 {Doc: "Whether the end counts. Treat an outcome that you do not know as stale.", Bound: schematest.Enum("completed", "completed_before", "stale")},
		"begun":                   {Doc: "Attempts that begin in the slots that became free."},
		"outcomes":                {Doc: "In the order of the reports. Treat one that you do not know as taken.", Bound: func(s *huma.Schema) { schematest.Enum(OutcomeTaken, OutcomeCancel, OutcomeStale)(s.Items) }},
		"tenant":                  {Doc: "The tenant that submitted the job."},
		"job":                     {Doc: "The job as it was submitted."},
		"large":                   {Doc: "The job is larger than inline_bytes; read it by HTTP."},
		"jobs":                    {Doc: "The attempts, with their jobs."},
		"attempts":                {Doc: "The attempts.", Bound: attempts},
		"reason":                  {Doc: "For people."},
		"code":                    {Doc: "What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as internal.", Bound: codeList},
		"message":                 {Doc: "For people."},
		"field":                   {Doc: "The path of the input at fault."},
		"retry_after_ms":          {Doc: "How long to wait before a repetition.", Bound: positive},
		"WelcomeMessage.version":  {Doc: "The gateway's release."},
		"WelcomeMessage.replaces": {Doc: "The epoch of the node's record; absent where there is none or it is in use."},

		"Delivery.attempt": {Doc: "Its job's id, a colon and a number from 1.", Bound: attemptText},
		"Delivery.tenant":  {Doc: "The tenant that submitted the job."},
		"Delivery.job":     {Doc: "The job as it was submitted; absent: ask for it with spec."},
		"Report.attempt":   {Doc: "The attempt that reports.", Bound: attemptText},
		"Report.seq":       {Doc: "Counts the reports of the attempt, from 1.", Bound: positive},
		"Report.value":     {Doc: "Any JSON value of at most 4 KiB."},

		"Node.node_id":            {Doc: "Ignored: the session has the node's id."},
		"Node.max_concurrency":    {Doc: "Slots, at most max_slots.", Bound: positive},
		"Node.installed_services": {Doc: "The services that jobs can name.", Bound: schematest.Items(0, freeslot.MaxServices, nil)},
		"Node.capabilities":       {Doc: "Languages by stage."},
		"Node.pool_ids":           {Doc: "Pools that the node joins whatever their rules say.", Bound: schematest.Items(0, freeslot.MaxPools, schematest.Name)},
		"Node.labels":             {Doc: "At most 64.", Bound: schematest.Values(schematest.Length(0, freeslot.MaxLabelValueLength))},
		"Node.features_supported": {Doc: "At most 64. The node does not have a feature that is false."},
		"Service.name":            {Doc: "The service's name.", Bound: schematest.Name},
		"Service.version":         {Doc: "Compared with the ranges that jobs ask for."},
		"Service.endpoint":        {Doc: "Shown with the node; jobs do not use it.", Bound: schematest.Length(0, 255)},

		"Languages.asr_languages":      {Doc: "BCP 47 tags that the node understands.", Bound: schematest.Items(0, freeslot.MaxLanguages, nil)},
		"Languages.tts_languages":      {Doc: "BCP 47 tags that the node produces.", Bound: schematest.Items(0, freeslot.MaxLanguages, nil)},
		"Languages.semantic_languages": {Doc: "BCP 47 tags of its translation stage.", Bound: schematest.Items(0, freeslot.MaxLanguages, nil)},

		"Allows.token":        {Doc: "The token's name."},
		"Allows.nodes":        {Doc: "Ids of nodes, or patterns with *."},
		"Allows.expires":      {Doc: "RFC 3339."},
		"Allows.services":     {Doc: "Services that the node may offer."},
		"Allows.pools":        {Doc: "Pools that the node may join."},
		"Allows.labels":       {Doc: "Values that labels may have."},
		"Allows.capabilities": {Doc: "Languages that the node may offer."},
		"Allows.slots":        {Doc: "The most slots.", Bound: positive},
	}
}

// TestSchemaReference: docs/schema/node-frames.json has the messages of this package's types.
func TestSchemaReference(t *testing.T) {
	t.Parallel()
	frames := schematest.Frames{
		Title: Protocol,
		Doc: "The frames between node agents and the gateway of freeslot. Written from the Go types; docs/node-protocol.md has the rules of " +
			"order and delivery. Both sides ignore unknown fields, and agents ignore messages of unknown type.",
		Peers: []schematest.Peer{
			{Name: "Agent", Doc: "Any message of an agent.", Go: []reflect.Type{reflect.TypeFor[Request]()}, Arrays: true, Messages: agentMessages},
			{Name: "Gateway", Doc: "Any message of a gateway.", Go: []reflect.Type{reflect.TypeFor[Answer]()}, Arrays: true, Messages: gatewayMessages},
		},
		Fields: messageFields(t), FieldDocs: wire.FieldDocs, Optional: []string{"Node.node_id"},
		Docs: map[string]string{
			"Delivery":    "An attempt that begins.",
			"Report":      "One progress report of an attempt.",
			"Node":        "What the node can do.",
			"Service":     "A service that is installed on the node.",
			"Languages":   "BCP 47 tags by stage. An absent list offers none.",
			"Allows":      "What a token permits. An absent limit allows everything.",
			"Job":         "A unit of work as a client submitted it.",
			"Requirement": "What the node must offer besides the service.",
			"LabelRule":   "Compares one label of the node.",
			"Admission":   "What a chain decided about the job.",
			"JobError":    "Why an attempt failed.",
		},
	}
	frames.Check(t, "../../..", "node-frames.json")
}

// TestSchemaCompatible: programs of the last release understand this build.
func TestSchemaCompatible(t *testing.T) {
	t.Parallel()
	schematest.CheckCompatible(t, "../../..", "node-frames.json", "AgentFrame", "GatewayFrame")
}
