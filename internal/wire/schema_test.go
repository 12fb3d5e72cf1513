package wire

import (
	"reflect"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/pagetest"
	"github.com/freeslot/freeslot/internal/testing/schematest"
)

// clientMessages are the messages of a client.
var clientMessages = []schematest.Message{
	{Name: "SubmitMessage", Type: "submit", Doc: `Submits one job ("job") or a batch ("jobs").`, Fields: "id job? jobs?", OneOf: []string{"job", "jobs"}},
	{Name: "CancelMessage", Type: "cancel", Doc: "Asks the job's node to stop it; a job that waits is cancelled at once.", Fields: "id job_id"},
	{Name: "AttachMessage", Type: "attach", Doc: "Has the job's result sent to this session; the session that waited before is detached.", Fields: "id job_id"},
	{Name: "PingMessage", Type: "ping", Doc: "Answered by pong; for clients that cannot send WebSocket pings.", Fields: "id"},
}

// replicaMessages are the messages of a replica.
var replicaMessages = []schematest.Message{
	{
		Name: "WelcomeMessage", Type: "welcome", Doc: "The first message of a session.",
		Fields: "protocol session_id replica version max_payload_bytes max_batch max_frame_bytes",
	},
	{Name: "AcceptedMessage", Type: "accepted", Doc: "The job is stored and will be answered.", Fields: "id index? job_id position?"},
	{
		Name: "AssignedMessage", Type: "assigned", Doc: "An attempt of the job begins on a node. Later ones have a higher attempt.",
		Fields: "job_id node attempt assigned_at_ms",
	},
	{
		Name: "ProgressMessage", Type: "progress", Fields: "job_id attempt seq at_ms value",
		Doc: "Progress that the handler of the running attempt reported. Of several reports in quick succession only the latest is sent, and none after the job's result.",
	},
	{Name: "ResultMessage", Type: "result", Doc: "The job has ended; its state is terminal.", Fields: "job"},
	{Name: "StatusMessage", Type: "status", Doc: "The answer to cancel and attach: the job as it is now.", Fields: "id job"},
	{Name: "DetachedMessage", Type: "detached", Doc: "Another session attached to the job and gets its result; this one does not.", Fields: "job_id"},
	{
		Name: "ErrorMessage", Type: "error", Doc: "A request, or one job of a batch, was refused.",
		Fields: "id? index? job_id? code message field? retry_after_ms? breakdown?",
	},
	{Name: "PongMessage", Type: "pong", Doc: "The answer to ping.", Fields: "id"},
	{Name: "GoawayMessage", Type: "goaway", Doc: "The replica stops; connect elsewhere at once and attach.", Fields: "reason"},
}

// messageFields describes the fields of messages.
func messageFields(t *testing.T) map[string]schematest.Field {
	return map[string]schematest.Field{
		"id":     {Doc: "The client's name for the request, printable ASCII. Every answer repeats it.", Bound: schematest.Length(1, MaxIDLength)},
		"job_id": {Doc: "The scheduler's name for the job.", Bound: schematest.Length(1, MaxIDLength)},
		"index":  {Doc: "The place of the job in its batch; absent outside batches.", Bound: schematest.Min(0)},
		"position": {
			Doc: "The job's place among those that wait for the same nodes, from 1; absent when it does not wait.", Bound: schematest.Min(1),
		},
		"SubmitMessage.job":  {Doc: "The job."},
		"SubmitMessage.jobs": {Doc: "1 to max_batch jobs. Every answer carries the index of its job.", Bound: schematest.Items(1, 0, nil)},
		"protocol":           {Doc: "The subprotocol.", Bound: schematest.Const(Protocol)},
		"session_id":         {Doc: "Names the session in the replica's log."},
		"replica":            {Doc: "The replica's name."},
		"version":            {Doc: "The replica's release."},
		"max_payload_bytes":  {Doc: "The largest payload of a job."},
		"max_batch":          {Doc: "The most jobs of one submit."},
		"max_frame_bytes":    {Doc: "The largest frame that the replica reads."},
		"node":               {Doc: "The node that runs the attempt."},
		"attempt":            {Doc: "Which try of the job it is, from 1.", Bound: schematest.Min(1)},
		"assigned_at_ms":     {Doc: "When the attempt began, by Redis' clock, in milliseconds since 1970.", Bound: schematest.Min(0)},
		"seq":                {Doc: "Counts the reports of the attempt, from 1; numbers are missing where a later report took the place of one.", Bound: schematest.Min(1)},
		"at_ms":              {Doc: "When it was reported, by Redis' clock, in milliseconds since 1970.", Bound: schematest.Min(0)},
		"value":              {Doc: "Any JSON value of at most 4 KiB."},
		"ResultMessage.job":  {Doc: "The job at its end."},
		"StatusMessage.job":  {Doc: "The job now."},
		"code": {
			Doc:   "What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as final.",
			Bound: schematest.Enum(pagetest.Constants(t, "../../error.go", "Code")...),
		},
		"message":        {Doc: "For people."},
		"field":          {Doc: "The path of the input at fault."},
		"retry_after_ms": {Doc: "How long to wait before trying again.", Bound: schematest.Min(1)},
		"breakdown": {
			Doc:   "For no_matching_node, the number of nodes by the first part of the requirement that they fail.",
			Bound: schematest.Values(schematest.Min(1)),
		},
		"reason":            {Doc: "For people."},
		"JobStatus.tenant":  {Doc: "The tenant that submitted the job."},
		"JobStatus.service": {Doc: "As submitted."},
		"JobStatus.slots":   {Doc: "How many slots the job takes.", Bound: schematest.Min(0)},
		"JobStatus.job_id":  {Doc: "The scheduler's name for the job.", Bound: schematest.Length(1, MaxIDLength)},
		"PastAttempt.node":  {Doc: "The node that ran it."},
		"Job.payload":       {Doc: "Any JSON value, handed to the handler as it is; null when absent."},
	}
}

// TestSchemaReference: docs/schema/client-frames.json has the messages of this package's types.
func TestSchemaReference(t *testing.T) {
	t.Parallel()
	frames := schematest.Frames{
		Title: Protocol,
		Doc: "The frames between clients and replicas of freeslot. Written from the Go types; docs/protocol.md has the rules of order and delivery. " +
			"A replica refuses unknown fields of a client's message. A client ignores unknown fields of a replica's, and messages of unknown type.",
		Peers: []schematest.Peer{
			{Name: "Client", Doc: "Any message of a client.", Go: []reflect.Type{reflect.TypeFor[sentRequest]()}, Strict: true, Messages: clientMessages},
			{
				Name: "Replica", Doc: "Any message of a replica. Arrays are sent only to clients that asked for frames=batch.",
				Go:     []reflect.Type{reflect.TypeFor[Welcome](), reflect.TypeFor[freeslot.Progress](), reflect.TypeFor[errorBody](), reflect.TypeFor[sentMessage]()},
				Arrays: true, Messages: replicaMessages,
			},
		},
		Fields: messageFields(t), FieldDocs: FieldDocs,
		Strict: []string{"Job", "Requirement", "LabelRule", "Admission"},
		Left:   []string{"JobStatus.held_by", "JobStatus.waits_for_pool", "JobStatus.node_by_ms"},
		Docs: map[string]string{
			"Job":         "A unit of work as a client submits it.",
			"Requirement": "What the node must offer besides the service.",
			"LabelRule":   "Compares one label of the node.",
			"Admission":   "What a chain decided about the job.",
			"JobStatus":   "What the scheduler knows about a job.",
			"JobError":    "Why a job failed.",
			"Progress":    "What the handler of the job reported last.",
			"PastAttempt": "An attempt that did not end its job well.",
		},
	}
	frames.Check(t, "../..", "client-frames.json")
}

// TestSchemaCompatible: programs of the last release understand this build.
func TestSchemaCompatible(t *testing.T) {
	t.Parallel()
	schematest.CheckCompatible(t, "../..", "client-frames.json", "ClientFrame", "ReplicaFrame")
}
