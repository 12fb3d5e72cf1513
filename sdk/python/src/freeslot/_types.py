"""Jobs as clients submit them, and what clients learn of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from . import _json
from ._errors import Error, invalid

if TYPE_CHECKING:
    from . import _client_frames as frames

_TERMINAL = frozenset(("succeeded", "failed", "cancelled", "expired", "dead"))


@dataclass(frozen=True)
class LabelRule:
    """Compares one label of a node.

    ``operator`` is one of ``in``, ``not_in``, ``exists``, ``not_exists``, ``gt``, ``ge``, ``lt``
    and ``le``.
    """

    label: str
    operator: str
    values: Sequence[str] = ()


@dataclass(frozen=True)
class Requirement:
    """What the job's node must offer. A field that is not given asks for nothing.

    ``services`` are further services, each optionally with a range of versions (``asr@>=1.2 <2``).
    The languages are BCP 47 tags. ``features`` must all be true on the node.
    """

    pool: str = ""
    preferred_pool: str = ""
    services: Sequence[str] = ()
    source_language: str = ""
    target_language: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    label_rules: Sequence[LabelRule] = ()
    features: Sequence[str] = ()


_NOTHING = Requirement()


@dataclass(frozen=True)
class Job:
    """A job to submit. Only ``service`` is required; docs/protocol.md explains the fields.

    ``payload`` is any value that JSON has. Times are in milliseconds.
    """

    service: str
    payload: Any = None
    requirement: Requirement = _NOTHING
    affinity_key: str = ""
    slots: int = 0
    priority: int = 0
    max_attempts: int = 0
    timeout_ms: int = 0
    run_at_ms: int = 0
    progress_timeout_ms: int = 0
    on_lease_loss: str = ""
    idempotency_key: str = ""
    concurrency_key: str = ""
    concurrency_limit: int = 0
    traceparent: str = ""


_REQUIREMENT_FIELDS = {f.name for f in fields(Requirement)}
_SIMPLE = [(f.name, type(f.default)) for f in fields(Job) if isinstance(f.default, (int, str))]


def make_job(job: Job | str, payload: Any, options: dict[str, Any]) -> Job:
    """Makes the job of a submit: fields of Job and of Requirement are options."""
    if isinstance(job, Job):
        if payload is not None or options:
            raise TypeError("a Job has its payload and its options itself")
        return job
    requirement = {name: options.pop(name) for name in list(options) if name in _REQUIREMENT_FIELDS}
    if requirement:
        if "requirement" in options:
            raise TypeError(f"requirement is given beside {', '.join(requirement)}, expected one of them")
        options["requirement"] = Requirement(**requirement)
    return Job(job, payload, **options)


def _plain(path: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise invalid(path, f"is {type(value).__name__}, expected {kind.__name__}")


def _requirement(path: str, requirement: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in fields(_plain(path, requirement, Requirement)):
        value = getattr(requirement, f.name)
        if not value:
            continue
        at = f"{path}.{f.name}"
        if f.name == "labels":
            out[f.name] = {_plain(at, k, str): _plain(f"{at}.{k}", v, str) for k, v in value.items()}
        elif f.name == "label_rules":
            out[f.name] = [_rule(f"{at}[{i}]", rule) for i, rule in enumerate(value)]
        elif f.name in ("services", "features"):
            out[f.name] = _texts(at, value)
        else:
            out[f.name] = _plain(at, value, str)
    return out


def _texts(path: str, values: Any) -> list[str]:
    if isinstance(values, str):
        raise invalid(path, "is str, expected a list of them")
    return [_plain(f"{path}[{i}]", value, str) for i, value in enumerate(values)]


def _rule(path: str, rule: Any) -> dict[str, Any]:
    _plain(path, rule, LabelRule)
    out: dict[str, Any] = {
        "label": _plain(f"{path}.label", rule.label, str),
        "operator": _plain(f"{path}.operator", rule.operator, str),
    }
    if rule.values:
        out["values"] = _texts(f"{path}.values", rule.values)
    return out


def encode_job(path: str, job: Job, max_payload_bytes: int) -> str:
    """Encodes a job. A value of a wrong type would make the replica refuse a whole batch."""
    out: dict[str, Any] = {"service": _plain(f"{path}.service", job.service, str)}
    for name, kind in _SIMPLE:
        value = getattr(job, name)
        if type(value) is not kind:
            value = _plain(f"{path}.{name}", value, kind)
        if value:
            out[name] = value
    if job.requirement is not _NOTHING and (needs := _requirement(f"{path}.requirement", job.requirement)):
        out["requirement"] = needs
    text = _json.dumps(out)
    if job.payload is None:
        return text
    try:
        payload = _json.dumps(job.payload)
    except (TypeError, ValueError) as err:
        raise invalid(f"{path}.payload", f"cannot be encoded as JSON: {err}") from None
    # A frame above the replica's limit would end the connection.
    if max_payload_bytes and (size := len(payload.encode())) > max_payload_bytes:
        at = f"{path}.payload"
        raise Error("payload_too_large", f"{at} has {size} bytes, the replica's limit is {max_payload_bytes}", at)
    return f'{text[:-1]},"payload":{payload}}}'


@dataclass(frozen=True)
class Failure:
    """Why a job failed. ``code`` is freeslot's or the handler's own."""

    code: str
    message: str


@dataclass(frozen=True)
class Progress:
    """What a handler reported. The pair of attempt and seq only rises."""

    attempt: int
    seq: int
    at_ms: int
    value: Any

    @classmethod
    def read(cls, raw: Any) -> Progress | None:
        if not isinstance(raw, dict):
            return None
        return cls(raw.get("attempt", 0), raw.get("seq", 0), raw.get("at_ms", 0), raw.get("value"))


@dataclass(frozen=True)
class Assignment:
    """Where a job runs. ``attempt`` is the number of the try, from 1."""

    node: str
    attempt: int


class JobStatus:
    """What the scheduler knows about a job. ``raw`` has all fields, as the replica sent them."""

    __slots__ = ("raw",)

    def __init__(self, raw: frames.JobStatus) -> None:
        self.raw = raw

    def __repr__(self) -> str:
        return f"<JobStatus {self.job_id} {self.state}>"

    @property
    def job_id(self) -> str:
        return str(self.raw.get("job_id", ""))

    @property
    def tenant(self) -> str:
        return str(self.raw.get("tenant", ""))

    @property
    def service(self) -> str:
        return str(self.raw.get("service", ""))

    @property
    def state(self) -> str:
        return str(self.raw.get("state", ""))

    @property
    def ended(self) -> bool:
        """True in the five states that never change."""
        return self.state in _TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"

    @property
    def node(self) -> str:
        return str(self.raw.get("node", ""))

    @property
    def attempt(self) -> int:
        return int(self.raw.get("attempt", 0))

    @property
    def position(self) -> int:
        return int(self.raw.get("position", 0))

    @property
    def failures(self) -> int:
        return int(self.raw.get("failures", 0))

    @property
    def result(self) -> Any:
        return self.raw.get("result")

    @property
    def error(self) -> Failure | None:
        error = self.raw.get("error")
        if not isinstance(error, dict):
            return None
        return Failure(str(error.get("code", "")), str(error.get("message", "")))

    @property
    def progress(self) -> Progress | None:
        return Progress.read(self.raw.get("progress"))
