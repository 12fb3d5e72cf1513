"""The frames of docs/schema/client-frames.json. Written by scripts/frames.py; do not edit."""

from typing import Any, Literal, NotRequired, TypedDict, Union


class AcceptedMessage(TypedDict):
    """The job is stored and will be answered."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    # The place of the job in its batch; absent outside batches.
    index: NotRequired[int]
    # The scheduler's name for the job.
    job_id: str
    # The job's place among those that wait for the same nodes, from 1; absent when it does not wait.
    position: NotRequired[int]
    type: Literal["accepted"]


class Admission(TypedDict):
    """What a chain decided about the job."""

    # The pool that the job asked for before.
    asked_pool: NotRequired[str]
    # The preferred pool that the job asked for before.
    asked_preferred_pool: NotRequired[str]
    # The chain that decided.
    chain: str
    # The chain only observes: the outcome changed nothing.
    observed: NotRequired[bool]
    # allow, deny, unknown or variant.
    outcome: str
    # The pool that the variant set.
    pool: NotRequired[str]
    # The preferred pool that the variant set.
    preferred_pool: NotRequired[str]
    # What led to the outcome, in words for people.
    reason: str
    # The rule that decided; absent for the default.
    rule: NotRequired[str]
    variant: NotRequired[str]
    # Of the chain; 0: it was not known.
    version: int


class AssignedMessage(TypedDict):
    """An attempt of the job begins on a node. Later ones have a higher attempt."""

    # When the attempt began, by Redis' clock, in milliseconds since 1970.
    assigned_at_ms: int
    # Which try of the job it is, from 1.
    attempt: int
    # The scheduler's name for the job.
    job_id: str
    # The node that runs the attempt.
    node: str
    type: Literal["assigned"]


class AttachMessage(TypedDict):
    """Has the job's result sent to this session; the session that waited before is detached."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    # The scheduler's name for the job.
    job_id: str
    type: Literal["attach"]


class CancelMessage(TypedDict):
    """Asks the job's node to stop it; a job that waits is cancelled at once."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    # The scheduler's name for the job.
    job_id: str
    type: Literal["cancel"]


class DetachedMessage(TypedDict):
    """Another session attached to the job and gets its result; this one does not."""

    # The scheduler's name for the job.
    job_id: str
    type: Literal["detached"]


class ErrorMessage(TypedDict):
    """A request, or one job of a batch, was refused."""

    # For no_matching_node, the number of nodes by the first part of the requirement that they fail.
    breakdown: NotRequired[dict[str, int]]
    # What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as
    # final.
    code: Literal["invalid_argument", "payload_too_large", "no_matching_node", "overloaded", "rate_limited", "unavailable", "unauthenticated", "permission_denied", "not_admitted", "not_found", "conflict", "internal"]
    # The path of the input at fault.
    field: NotRequired[str]
    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: NotRequired[str]
    # The place of the job in its batch; absent outside batches.
    index: NotRequired[int]
    # The scheduler's name for the job.
    job_id: NotRequired[str]
    # For people.
    message: str
    # How long to wait before trying again.
    retry_after_ms: NotRequired[int]
    type: Literal["error"]


class GoawayMessage(TypedDict):
    """The replica stops; connect elsewhere at once and attach."""

    # For people.
    reason: str
    type: Literal["goaway"]


class Job(TypedDict):
    """A unit of work as a client submits it."""

    # What a chain decided about the job. The scheduler sets it; a submission's is ignored.
    admission: NotRequired["Admission"]
    # Jobs with the same key go to the same node while that has room. At most 128 bytes.
    affinity_key: NotRequired[str]
    # Of the tenant's jobs with the same key concurrency_limit run at a time; further ones wait, by priority
    # and age. Jobs of one key should ask for the same nodes. At most 128 bytes.
    concurrency_key: NotRequired[str]
    # How many jobs with the concurrency_key may run at a time, 1 to 65536; the job submitted last decides for
    # all. Absent means 1.
    concurrency_limit: NotRequired[int]
    # A second job of the tenant with the same key is not created; the answer has the id of the first. At most
    # 128 bytes.
    idempotency_key: NotRequired[str]
    # How often the job may fail before it is dead: the loss of its node counts, and so does an error that the
    # handler calls retryable. 1 to 100; absent means 3.
    max_attempts: NotRequired[int]
    # What a node does with the running job when it has not reached Redis for the heartbeat limit; cancel
    # keeps it from running beside its next attempt. Absent means continue.
    on_lease_loss: NotRequired[Literal["continue", "cancel"]]
    # Any JSON value, handed to the handler as it is; null when absent.
    payload: NotRequired[Any]
    # Of jobs that wait for the same nodes the ones with a higher priority come first. 0, the lowest, to 9;
    # absent means 0.
    priority: NotRequired[int]
    # How long the handler may tell no progress, in milliseconds, at most 30 days; then the attempt has failed
    # as stalled, and the job is tried again while max_attempts lasts. Absent means no limit.
    progress_timeout_ms: NotRequired[int]
    # What the node must offer besides the service.
    requirement: NotRequired["Requirement"]
    # The job does not begin before this time, in milliseconds since 1970; it is scheduled until then. Absent
    # means at once.
    run_at_ms: NotRequired[int]
    # Names the handler that runs the job; the node must have it installed.
    service: str
    # How much of a node's capacity the job takes; absent means 1.
    slots: NotRequired[int]
    # How long the job may take from its submission to its end, in milliseconds, at most 30 days; then it
    # expires. Absent means no limit.
    timeout_ms: NotRequired[int]
    # The W3C trace context of the submitter.
    traceparent: NotRequired[str]


class JobError(TypedDict):
    """Why a job failed."""

    # One of freeslot's own codes, or one that the handler chose.
    code: str
    # For people.
    message: str

# What the scheduler knows about a job.
JobStatus = TypedDict(
    "JobStatus",
    {
        # When the last attempt began, by the store's clock, in milliseconds since 1970; 0 means not yet.
        "assigned_at_ms": int,
        # Which try that is, from 1; 0 before the first.
        "attempt": int,
        # The last attempts that did not end the job well, the oldest first; absent in results that are sent
        # by themselves.
        "attempts": NotRequired[list["PastAttempt"]],
        # The id of the job's class: jobs with the same requirement.
        "class": NotRequired[str],
        # When the job expires, by the store's clock, in milliseconds since 1970; absent means never.
        "deadline_ms": NotRequired[int],
        # What failed last: in the states failed and dead, and in retry_wait and expired where an attempt had
        # failed; in expired also for lack of a node.
        "error": NotRequired["JobError"],
        # How many attempts failed; absent means none.
        "failures": NotRequired[int],
        # The store's clock, in milliseconds since 1970; absent means not yet.
        "finished_at_ms": NotRequired[int],
        # The scheduler's name for the job.
        "job_id": str,
        # Where the job runs or ran last; empty before its first attempt, and while it waits for the next.
        "node": str,
        # The job's place among those that wait for the same nodes, from 1, when it was looked up; absent when
        # it does not wait, and in listings.
        "position": NotRequired[int],
        # As submitted; absent means 0.
        "priority": NotRequired[int],
        # What a handler of the job told last; absent where none has, and in listings.
        "progress": NotRequired["Progress"],
        # The id of the job as which this one was submitted again.
        "requeued_as": NotRequired[str],
        # The id of the job that this one repeats.
        "requeued_from": NotRequired[str],
        # What the handler returned; only in state succeeded.
        "result": NotRequired[Any],
        # When a job that is scheduled or in retry_wait begins to wait for a slot, by the store's clock, in
        # milliseconds since 1970; absent otherwise.
        "run_at_ms": NotRequired[int],
        # The schedule that made the job; absent for a client's job.
        "schedule": NotRequired[str],
        # As submitted.
        "service": str,
        # How many slots the job takes.
        "slots": int,
        # The last five are terminal. Treat a state that you do not know as not terminal.
        "state": Literal["scheduled", "waiting", "moving", "retry_wait", "running", "cancelling", "succeeded", "failed", "cancelled", "expired", "dead"],
        # The store's clock, in milliseconds since 1970.
        "submitted_at_ms": int,
        # The tenant that submitted the job.
        "tenant": str,
    },
)


class LabelRule(TypedDict):
    """Compares one label of the node."""

    # The label's name. A label that the node does not have fails all operators but not_in and not_exists.
    label: str
    # gt, ge, lt and le compare decimal numbers.
    operator: Literal["in", "not_in", "exists", "not_exists", "gt", "ge", "lt", "le"]
    # 1 to 64 for in and not_in, none for exists and not_exists, one decimal number for the others.
    values: NotRequired[list[str]]


class PastAttempt(TypedDict):
    """An attempt that did not end its job well."""

    # The number of the try, from 1.
    attempt: int
    # By Redis' clock, in milliseconds since 1970; 0 if it is not known.
    began_at_ms: int
    # The code of its error; absent if there was none or it has other characters than letters, digits and
    # ._:/-.
    code: NotRequired[str]
    # How it ended.
    ended: Literal["failed", "lost", "handed_back", "cancelled", "expired"]
    # By Redis' clock, in milliseconds since 1970.
    ended_at_ms: int
    # The node that ran it.
    node: str


class PingMessage(TypedDict):
    """Answered by pong; for clients that cannot send WebSocket pings."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    type: Literal["ping"]


class PongMessage(TypedDict):
    """The answer to ping."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    type: Literal["pong"]


class Progress(TypedDict):
    """What the handler of the job reported last."""

    # When it was reported, by the store's clock, in milliseconds since 1970.
    at_ms: int
    # Which try of the job told it, from 1.
    attempt: int
    # Counts what the attempt told, from 1; numbers are missing where something later took their place.
    seq: int
    # Any JSON value of at most 4 KiB.
    value: Any


class ProgressMessage(TypedDict):
    """Progress that the handler of the running attempt reported. Of several reports in quick succession only the latest is sent, and none after the job's result."""

    # When it was reported, by Redis' clock, in milliseconds since 1970.
    at_ms: int
    # Which try of the job it is, from 1.
    attempt: int
    # The scheduler's name for the job.
    job_id: str
    # Counts the reports of the attempt, from 1; numbers are missing where a later report took the place of
    # one.
    seq: int
    type: Literal["progress"]
    # Any JSON value of at most 4 KiB.
    value: Any


class Requirement(TypedDict):
    """What the node must offer besides the service."""

    # Features that the node must have.
    features: NotRequired[list[str]]
    # Comparisons of the node's labels. All of them must hold.
    label_rules: NotRequired[list["LabelRule"]]
    # Labels that the node must have, with these very values.
    labels: NotRequired[dict[str, str]]
    # Only nodes of this pool.
    pool: NotRequired[str]
    # Fitting nodes of this pool come first, the other fitting nodes after them.
    preferred_pool: NotRequired[str]
    # Further services that the node must have installed, each optionally with a range of versions: asr@>=1.2
    # <2.
    services: NotRequired[list[str]]
    # A BCP 47 tag of a language that the node must understand.
    source_language: NotRequired[str]
    # A BCP 47 tag of a language that the node must produce.
    target_language: NotRequired[str]


class ResultMessage(TypedDict):
    """The job has ended; its state is terminal."""

    # The job at its end.
    job: "JobStatus"
    type: Literal["result"]


class StatusMessage(TypedDict):
    """The answer to cancel and attach: the job as it is now."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    # The job now.
    job: "JobStatus"
    type: Literal["status"]


class SubmitMessage(TypedDict):
    """Submits one job ("job") or a batch ("jobs")."""

    # The client's name for the request, printable ASCII. Every answer repeats it.
    id: str
    # The job.
    job: NotRequired["Job"]
    # 1 to max_batch jobs. Every answer carries the index of its job.
    jobs: NotRequired[list["Job"]]
    type: Literal["submit"]


class WelcomeMessage(TypedDict):
    """The first message of a session."""

    # The most jobs of one submit.
    max_batch: int
    # The largest frame that the replica reads.
    max_frame_bytes: int
    # The largest payload of a job.
    max_payload_bytes: int
    # The subprotocol.
    protocol: Literal["freeslot.v1"]
    # The replica's name.
    replica: str
    # Names the session in the replica's log.
    session_id: str
    type: Literal["welcome"]
    # The replica's release.
    version: str

# One message.
ClientFrame = Union["ClientMessage"]

# Any message of a client.
ClientMessage = Union["SubmitMessage", "CancelMessage", "AttachMessage", "PingMessage"]

# One message, or an array of messages.
ReplicaFrame = Union["ReplicaMessage", list["ReplicaMessage"]]

# Any message of a replica. Arrays are sent only to clients that asked for frames=batch.
ReplicaMessage = Union["WelcomeMessage", "AcceptedMessage", "AssignedMessage", "ProgressMessage", "ResultMessage", "StatusMessage", "DetachedMessage", "ErrorMessage", "PongMessage", "GoawayMessage"]
