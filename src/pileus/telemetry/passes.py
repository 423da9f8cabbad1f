"""Records what each pass observes, plans, calls and writes, for the journal and for traces.

    with recording(journal.add, …):                 # the manager, once
        with passing("service") as this:            # the runtime, around each pass
            observed(subject, "no load balancer")   # a controller
            planned(subject, lines)                 # a controller
            with calling("balancers.apply") …       # the middleware of the cloud
            wrote(…)                                # the client of the API server

The current pass is a context variable: tasks that a pass starts belong to it. A call that several
passes share belongs to each of them. Outside of `recording` nothing is kept.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import field
from datetime import UTC, datetime

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.telemetry.journal import (
    LONGEST_TEXT,
    MOST_CALLS,
    MOST_DETAILS,
    MOST_LINES,
    MOST_REQUESTS,
    MOST_WRITES,
    Call,
    Entry,
    HttpRequest,
    Line,
    Subject,
    Write,
    cut,
)
from pileus.telemetry.log import Log
from pileus.telemetry.mask import masked

log = Log(__name__)

Place = tuple[str, str, str]
START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _About:
    """What a pass found out about one object."""

    subject: Subject
    observed: str = ""
    lines: dict[tuple[str, str, str, str], Line] = field(
        default_factory=dict[tuple[str, str, str, str], Line]
    )


@dataclass(slots=True, eq=False)
class _Call:
    """A call under way, shared by the passes that wait for it."""

    method: str
    items: int
    is_write: bool
    began: float
    requests: list[HttpRequest] = field(default_factory=list[HttpRequest])
    ended: float = 0.0
    result: str = "success"
    message: str = ""


@dataclass(slots=True)
class _Write:
    request: str
    began: float
    ended: float
    status: int
    message: str
    id: str


@dataclass(slots=True, eq=False)
class Pass:
    """One pass, while it runs and when it has ended. Times are those of the event loop."""

    controller: str
    began: float
    ended: float = 0.0
    ended_at: datetime = START
    plans: list[float] = field(default_factory=list[float])
    """When plans were made."""
    calls: list[_Call] = field(default_factory=list[_Call])
    writes: list[_Write] = field(default_factory=list[_Write])
    result: str = "cancelled"
    message: str = ""
    next_in: float | None = None
    _about: dict[Place, _About] = field(default_factory=dict[Place, _About])

    def done(self, next_in: float | None = None) -> None:
        self.result, self.message, self.next_in = "done", "", next_in

    def failed(self, error: BaseException, next_in: float | None = None) -> None:
        self.result, self.next_in = "failed", next_in
        self.message = clean(str(error) or type(error).__name__)

    def stopped(self, why: str, next_in: float | None = None) -> None:
        """The process is not the leader any more."""
        self.result, self.message, self.next_in = "stopped", clean(why), next_in

    def observed(self, subject: Subject, text: str) -> None:
        about = self._of(subject)
        about.observed = clean(text) or about.observed

    def planned(self, subject: Subject, line: Line) -> None:
        """Add a line, in the place of an earlier one about the same change."""
        lines = self._of(subject).lines
        parts = ", ".join(sorted(line.summary.split(", ")))  # in any order
        key = (line.place, line.action, parts, line.reason)
        if key in lines or len(lines) < MOST_LINES:
            lines[key] = line

    def entries(self, at: datetime) -> Sequence[Entry]:
        """Returns one entry per object; about the controller itself if it had no object."""
        found = [*self._about.values()] or [
            _About(Subject(kind="Controller", name=self.controller))
        ]
        return [self._entry(about, at, alone=len(found) == 1) for about in found]

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was planned, written or failed."""
        is_noted = any(call.is_write or call.result != "success" for call in self.calls)
        has_lines = any(about.lines for about in self._about.values())
        return not (has_lines or self.writes or self.result == "failed" or is_noted)

    def part(self) -> "Pass":
        """Returns a pass of its own about a part of the objects, with the calls so far."""
        return Pass(self.controller, self.began, calls=[*self.calls])

    def _of(self, subject: Subject) -> _About:
        return self._about.setdefault(subject.place, _About(subject))

    def _entry(self, about: _About, at: datetime, *, alone: bool) -> Entry:
        writes = [each for each in self.writes if alone or _is_about(each, about.subject)]
        return Entry(
            at=at,
            first=at,
            object=about.subject,
            controller=self.controller,
            seconds=round(self.ended - self.began, 3),
            observed=about.observed,
            plan=tuple(about.lines.values()),
            calls=tuple(self._call(call) for call in self.calls[-MOST_CALLS:]),
            writes=tuple(self._write(write) for write in writes[-MOST_WRITES:]),
            result=self.result,
            message=self.message,
            next_in=None if self.next_in is None else round(self.next_in, 1),
        )

    def _call(self, call: _Call) -> Call:
        return Call(
            method=call.method,
            items=call.items,
            is_write=call.is_write,
            started=round(call.began - self.began, 3),
            seconds=round(max(call.ended - call.began, 0.0), 3),
            result=call.result,
            message=call.message,
            requests=tuple(call.requests[-MOST_REQUESTS:]),
        )

    def _write(self, write: _Write) -> Write:
        return Write(
            request=write.request,
            started=round(write.began - self.began, 3),
            seconds=round(write.ended - write.began, 3),
            status=write.status,
            message=write.message,
            id=write.id,
        )


Sink = Callable[[Pass, Sequence[Entry]], None]
"""Is given every pass that ended, with its entries; a quiet pass has none. Must return quickly."""


@dataclass(frozen=True, slots=True)
class _Recorder:
    sinks: tuple[Sink, ...]
    clock: Clock


_RECORDER: ContextVar[_Recorder | None] = ContextVar("pileus_recorder", default=None)
_PASSES: ContextVar[tuple[Pass, ...]] = ContextVar("pileus_passes", default=())
_CALL: ContextVar[_Call | None] = ContextVar("pileus_cloud_call", default=None)


@contextmanager
def recording(clock: Clock, *sinks: Sink) -> Generator[None]:
    """Give every pass of the block, and of tasks that it starts, to the sinks."""
    token = _RECORDER.set(_Recorder(sinks, clock))
    try:
        yield
    finally:
        _RECORDER.reset(token)


def passing(controller: str) -> AbstractContextManager[Pass]:
    """One pass of a controller."""
    return _ended(Pass(controller, _now()))


@contextmanager
def part_of_pass() -> Generator[None]:
    """A part of a round that is about other objects than the rest, and may outlast the round.

    It is recorded as a pass of its own, with the calls that the round has made before.
    """
    current = _PASSES.get()
    if not current:
        yield
        return
    with _ended(current[0].part()) as this:
        try:
            yield
        except Exception as error:
            this.failed(error)
            raise
        failed = next((each for each in reversed(this.writes) if _failed(each)), None)
        this.done()
        if failed is not None and failed is this.writes[-1]:
            this.result, this.message = "failed", failed.message


@contextmanager
def _ended(this: Pass) -> Generator[Pass]:
    token = _PASSES.set((this,))
    try:
        yield this
    finally:
        _PASSES.reset(token)
        this.ended = _now()
        recorder = _RECORDER.get()
        if recorder is not None:
            this.ended_at = recorder.clock.now()
            entries = () if this.is_quiet else this.entries(this.ended_at)
            for sink in recorder.sinks:
                _give(sink, this, entries)


def current_passes() -> tuple[Pass, ...]:
    """Returns the current pass, for a call that is made elsewhere on its behalf."""
    return _PASSES.get()


@contextmanager
def on_behalf_of(passes: Iterable[tuple[Pass, ...]]) -> Generator[None]:
    """Let what is called in the block belong to these passes."""
    token = _PASSES.set(tuple(dict.fromkeys(one for some in passes for one in some)))
    try:
        yield
    finally:
        _PASSES.reset(token)


def observed(subject: Subject, text: str = "") -> None:
    """Record that the pass is about this object, and what was observed of it."""
    for each in _PASSES.get():
        each.observed(subject, text)


def planned(lines: Iterable[tuple[Subject, Line]]) -> None:
    """Record the lines of a plan, each with its object."""
    passes = _PASSES.get()
    if not passes or _RECORDER.get() is None:
        return
    found = [(subject, _clean_line(line)) for subject, line in lines]
    for each in passes:
        each.plans.append(_now())
        for subject, line in found:
            each.planned(subject, line)


@contextmanager
def calling(method: str, items: int, *, is_write: bool) -> Generator[None]:
    """One call of a provider's method, by the current passes."""
    passes = _PASSES.get()
    if not passes:
        yield
        return
    call = _Call(method, items, is_write, _now())
    for each in passes:
        each.calls.append(call)
    token = _CALL.set(call)
    try:
        yield
    except asyncio.CancelledError:
        call.result = "cancelled"
        raise
    except BaseException as error:
        call.result, call.message = type(error).__name__, clean(str(error))
        raise
    finally:
        _CALL.reset(token)
        call.ended = _now()


def requested(request: str, status: int, seconds: float, request_id: str) -> None:
    """Record one request of a provider, as a part of the current call."""
    call = _CALL.get()
    if call is not None:
        call.requests.append(
            HttpRequest(
                request=clean(request),
                status=status,
                seconds=round(seconds, 3),
                id=clean(request_id),
            )
        )
        del call.requests[: -2 * MOST_REQUESTS]


def wrote(request: str, began: float, status: int, message: str, request_id: str) -> None:
    """Record one write to the API server that has ended. Tokens of service accounts are skipped."""
    if "/serviceaccounts/" in request:
        return
    for each in _PASSES.get():
        each.writes.append(
            _Write(clean(request), began, _now(), status, clean(message), clean(request_id))
        )


def _give(sink: Sink, this: Pass, entries: Sequence[Entry]) -> None:
    try:
        sink(this, entries)
    except Exception as error:  # a record that cannot be kept must not stop what it is about
        log.exception("Cannot record a pass", error=error, controller=this.controller)


def clean(text: str) -> str:
    """Returns the text in the form that the journal keeps: bounded, without secrets."""
    if not text:
        return text
    found = masked(text)
    return cut(found) if found[LONGEST_TEXT:] else found


def _clean_line(line: Line) -> Line:
    return Line(
        place=line.place,
        action=line.action,
        summary=clean(line.summary),
        details=tuple(clean(each) for each in line.details[:MOST_DETAILS]),
        waits_for=clean(line.waits_for),
        reason=line.reason,
    )


def _failed(write: _Write) -> bool:
    return not 200 <= write.status < 300  # noqa: PLR2004 -- HTTP's own numbers


def _is_about(write: _Write, subject: Subject) -> bool:
    where = f"namespaces/{subject.namespace}/" if subject.namespace else ""
    path = f" /api/v1/{where}{subject.kind.lower()}s/{subject.name}"
    return write.request.endswith(path) or f"{path}/" in write.request


def _now() -> float:
    return asyncio.get_running_loop().time()
