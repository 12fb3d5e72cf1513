"""The frames of docs/schema/node-frames.json. Written by scripts/frames.py; do not edit."""

from typing import Any, Literal, NotRequired, TypedDict, Union


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


class Allows(TypedDict):
    """What a token permits. An absent limit allows everything."""

    # Languages that the node may offer.
    capabilities: NotRequired[list[str]]
    # RFC 3339.
    expires: NotRequired[str]
    # Values that labels may have.
    labels: NotRequired[dict[str, list[str]]]
    # Ids of nodes, or patterns with *.
    nodes: list[str]
    # Pools that the node may join.
    pools: NotRequired[list[str]]
    # Services that the node may offer.
    services: NotRequired[list[str]]
    # The most slots.
    slots: NotRequired[int]
    # The token's name.
    token: str


class BeatMessage(TypedDict):
    """The answer to heartbeat."""

    # Attempts that a client asked to cancel.
    cancel: NotRequired[list[str]]
    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # Attempts that the node owns and did not name: ask for their spec, and run them.
    start: NotRequired[list[str]]
    # Attempts that the node named and does not own: stop them.
    stop: NotRequired[list[str]]
    type: Literal["beat"]


class CancelMessage(TypedDict):
    """A client asked to cancel these attempts."""

    # The attempts.
    attempts: list[str]
    type: Literal["cancel"]


class CompleteMessage(TypedDict):
    """Ends an attempt."""

    # The attempt that ends: its job's id, a colon and a number from 1.
    attempt: str
    # Why it failed.
    error: NotRequired["JobError"]
    # Of the request, repeated in its answer; always sent in a frame, absent by HTTP.
    id: NotRequired[int]
    # Of a failed attempt: whether the job is tried again; absent ends the job.
    next: NotRequired[Literal["retry", "hand_back"]]
    # Any JSON value of at most inline_bytes; a larger one goes by HTTP.
    result: NotRequired[Any]
    # With retry: how long the next attempt waits, at most a year.
    retry_delay_ms: NotRequired[int]
    # How it ended.
    state: Literal["succeeded", "failed", "cancelled"]
    type: Literal["complete"]


class CompletedMessage(TypedDict):
    """The answer to complete; without id, to one by HTTP."""

    # Attempts that begin in the slots that became free.
    begun: NotRequired[list["Delivery"]]
    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: NotRequired[int]
    # Whether the end counts. Treat an outcome that you do not know as stale.
    outcome: Literal["completed", "completed_before", "stale"]
    type: Literal["completed"]


class Delivery(TypedDict):
    """An attempt that begins."""

    # Its job's id, a colon and a number from 1.
    attempt: str
    # The job as it was submitted; absent: ask for it with spec.
    job: NotRequired["Job"]
    # The tenant that submitted the job.
    tenant: str


class DeregisterMessage(TypedDict):
    """Takes the node out; its jobs wait for another node."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    type: Literal["deregister"]


class DeregisteredMessage(TypedDict):
    """The answer to deregister."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # Ids of jobs that the node owned and does not own any more.
    lost: NotRequired[list[str]]
    type: Literal["deregistered"]


class ErrorMessage(TypedDict):
    """A request was refused; without id, the session ends."""

    # What kind of failure it is. Codes never change their meaning. Treat a code that you do not know as
    # internal.
    code: Literal["superseded", "unknown_node", "node_in_use", "stale_connection", "invalid_argument", "payload_too_large", "overloaded", "unavailable", "unauthenticated", "permission_denied", "not_found", "internal"]
    # The path of the input at fault.
    field: NotRequired[str]
    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: NotRequired[int]
    # For people.
    message: str
    # How long to wait before a repetition.
    retry_after_ms: NotRequired[int]
    type: Literal["error"]


class GoawayMessage(TypedDict):
    """The replica stops; connect to another address, then close this connection."""

    # For people.
    reason: NotRequired[str]
    type: Literal["goaway"]


class HeartbeatMessage(TypedDict):
    """Proves that the node lives, and compares what it runs with what it owns."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # It must not wait to share a call.
    now: NotRequired[bool]
    # Figures of the machine, an object of at most 16 KiB; absent, the last ones stay.
    resources: NotRequired[Any]
    # The attempts that the node runs, at most max_attempts.
    running: NotRequired[list[str]]
    # Whether the node takes new jobs; absent, the last one stays.
    status: NotRequired[Literal["online", "draining"]]
    type: Literal["heartbeat"]


class HelloMessage(TypedDict):
    """The first message of a session."""

    # Only asks what the token may do; no session begins.
    check: NotRequired[bool]
    # Counts the dials of this epoch, from 1.
    connection: int
    # Names this start of the agent; a new one for each.
    epoch: str
    # The node's id.
    node: str
    type: Literal["hello"]
    # The agent's release.
    version: NotRequired[str]


class Job(TypedDict):
    """A unit of work as a client submitted it."""

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
    # Any JSON value, handed to the handler as it is.
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
    """Why an attempt failed."""

    # One of freeslot's own codes, or one that the handler chose.
    code: str
    # For people.
    message: str


class JobsMessage(TypedDict):
    """Attempts that begin on the node."""

    # The attempts, with their jobs.
    jobs: list["Delivery"]
    type: Literal["jobs"]


class LabelRule(TypedDict):
    """Compares one label of the node."""

    # The label's name. A label that the node does not have fails all operators but not_in and not_exists.
    label: str
    # gt, ge, lt and le compare decimal numbers.
    operator: Literal["in", "not_in", "exists", "not_exists", "gt", "ge", "lt", "le"]
    # 1 to 64 for in and not_in, none for exists and not_exists, one decimal number for the others.
    values: NotRequired[list[str]]


class Languages(TypedDict):
    """BCP 47 tags by stage. An absent list offers none."""

    # BCP 47 tags that the node understands.
    asr_languages: NotRequired[list[str]]
    # BCP 47 tags of its translation stage.
    semantic_languages: NotRequired[list[str]]
    # BCP 47 tags that the node produces.
    tts_languages: NotRequired[list[str]]


class Node(TypedDict):
    """What the node can do."""

    # Languages by stage.
    capabilities: "Languages"
    # At most 64. The node does not have a feature that is false.
    features_supported: NotRequired[dict[str, bool]]
    # The services that jobs can name.
    installed_services: list["Service"]
    # At most 64.
    labels: NotRequired[dict[str, str]]
    # Slots, at most max_slots.
    max_concurrency: int
    # Ignored: the session has the node's id.
    node_id: NotRequired[str]
    # Pools that the node joins whatever their rules say.
    pool_ids: NotRequired[list[str]]


class ProgressMessage(TypedDict):
    """Reports how far attempts are."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # 1 to 64 reports.
    reports: list["Report"]
    type: Literal["progress"]


class ProgressedMessage(TypedDict):
    """The answer to progress."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # In the order of the reports. Treat one that you do not know as taken.
    outcomes: list[Literal["taken", "cancel", "stale"]]
    type: Literal["progressed"]


class RegisterMessage(TypedDict):
    """The node's whole profile."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # What the node can do. Its node_id is ignored.
    profile: "Node"
    # The epoch that the welcome named; absent where it named none.
    replaces: NotRequired[str]
    type: Literal["register"]


class RegisteredMessage(TypedDict):
    """The answer to register."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: int
    # Ids of jobs that the node owned and does not own any more.
    lost: NotRequired[list[str]]
    type: Literal["registered"]


class Report(TypedDict):
    """One progress report of an attempt."""

    # The attempt that reports.
    attempt: str
    # Counts the reports of the attempt, from 1.
    seq: int
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


class Service(TypedDict):
    """A service that is installed on the node."""

    # Shown with the node; jobs do not use it.
    endpoint: NotRequired[str]
    # The service's name.
    name: str
    # Compared with the ranges that jobs ask for.
    version: NotRequired[str]


class SpecAnswerMessage(TypedDict):
    """The answer to spec; without id, to one by HTTP."""

    # Of a request, repeated in its answer. The agent gives no two requests under way the same one.
    id: NotRequired[int]
    # The job as it was submitted.
    job: NotRequired["Job"]
    # The job is larger than inline_bytes; read it by HTTP.
    large: NotRequired[bool]
    # The tenant that submitted the job.
    tenant: NotRequired[str]
    type: Literal["spec"]


class SpecMessage(TypedDict):
    """Reads the job of an attempt that came without it."""

    # Of the request, repeated in its answer; always sent in a frame, absent by HTTP.
    id: NotRequired[int]
    # The job's id.
    job_id: str
    type: Literal["spec"]


class SyncMessage(TypedDict):
    """Send a heartbeat at once."""

    type: Literal["sync"]


class WelcomeMessage(TypedDict):
    """The answer to hello."""

    # What the token may do.
    allows: "Allows"
    # A node that is silent for longer is taken out.
    heartbeat_limit_ms: int
    # The node lives under another token or as a direct agent.
    in_use: NotRequired[bool]
    # The largest result or job in a frame.
    inline_bytes: int
    # The most attempts that a heartbeat names.
    max_attempts: int
    # The largest frame that the gateway reads.
    max_frame_bytes: int
    # The most requests under way.
    max_requests: int
    # The most slots of a node.
    max_slots: int
    # The subprotocol.
    protocol: Literal["freeslot.node.v1"]
    # The epoch of the node's record; absent where there is none or it is in use.
    replaces: NotRequired[str]
    # The replica's name.
    replica: str
    # The name of the session; requests by HTTP repeat it in the header Freeslot-Session.
    session: str
    type: Literal["welcome"]
    # The gateway's release.
    version: str

# One message, or an array of messages.
AgentFrame = Union["AgentMessage", list["AgentMessage"]]

# Any message of an agent.
AgentMessage = Union["HelloMessage", "RegisterMessage", "HeartbeatMessage", "CompleteMessage", "ProgressMessage", "SpecMessage", "DeregisterMessage"]

# One message, or an array of messages.
GatewayFrame = Union["GatewayMessage", list["GatewayMessage"]]

# Any message of a gateway.
GatewayMessage = Union["WelcomeMessage", "RegisteredMessage", "BeatMessage", "CompletedMessage", "ProgressedMessage", "SpecAnswerMessage", "DeregisteredMessage", "JobsMessage", "CancelMessage", "SyncMessage", "GoawayMessage", "ErrorMessage"]
