"""`/healthz`, `/livez`, `/readyz` and `/metrics/slis`: registered checks, and how they are shown.

A check runs in its own thread: one that raises or hangs fails, and harms neither the server nor
the other checks.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from pileus.dataclass import dataclass
from pileus.http.messages import Request, Response
from pileus.server import responses
from pileus.server.metrics import exposing
from pileus.server.router import Handler, Routes
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.log import Log

log = Log(__name__)


Check = Callable[[], str | None]
"""Returns None if healthy, else the reason. Called in its own thread; must only read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check; `failure` is None if it passed."""

    name: str
    failure: str | None = None
    excluded: bool = False


class Checkup:
    """A named check. Does not start again while a run hangs, so that threads cannot pile up."""

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self._check = check
        self._running: asyncio.Future[str | None] | None = None

    async def run(self, patience: float) -> Outcome:
        """Returns the outcome; a check that raises or takes longer than `patience` fails."""
        running = self._running
        if running is None or running.done():
            running = self._running = self._start()
        try:
            async with asyncio.timeout(patience):
                return Outcome(self.name, await asyncio.shield(running))
        except TimeoutError:
            return Outcome(self.name, f"the check has not answered within {patience:g} s")

    def _start(self) -> asyncio.Future[str | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def work() -> None:
            failure = self._ask()
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(_settle, answer, failure)

        # A daemon thread: a check that hangs must not block the exit of the process.
        threading.Thread(target=work, name=f"healthcheck-{self.name}", daemon=True).start()
        return answer

    def _ask(self) -> str | None:
        try:
            return self._check()
        except Exception as error:  # noqa: BLE001 -- whatever a check raises is its failure
            return f"the check itself failed: {error!r}"


def _settle(answer: asyncio.Future[str | None], failure: str | None) -> None:
    if not answer.done():
        answer.set_result(failure)


PATIENCE = 5.0
"""Seconds that a check may take."""

Observe = Callable[["Kind", Outcome], None]


class Kind(StrEnum):
    HEALTHZ = "healthz"
    LIVEZ = "livez"
    READYZ = "readyz"


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all checks of one kind."""

    kind: Kind
    outcomes: tuple[Outcome, ...]
    unknown: tuple[str, ...] = ()
    """Names to exclude that no check has."""

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.failure is not None)


@dataclass(frozen=True, slots=True)
class _Registered:
    checkup: Checkup
    kinds: frozenset[Kind]


class Health:
    """The checks of this process. They can be added and removed at any time."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._checks: dict[str, _Registered] = {}
        self._ping = Checkup("ping", lambda: None)

    def add(self, name: str, check: Check, *, live: bool = True, ready: bool = True) -> None:
        """Register a check for `/livez`, `/readyz` or both.

        `/healthz` counts as liveness: manifests written for the Go manager use it as a liveness
        probe, and a process that is not ready yet must not be restarted.
        """
        if name in self._checks:
            raise ValueError(f"there is a health check {name!r} already")
        wanted = {Kind.HEALTHZ: live, Kind.LIVEZ: live, Kind.READYZ: ready}
        kinds = frozenset(kind for kind, wants in wanted.items() if wants)
        self._checks[name] = _Registered(Checkup(name, check), kinds)

    def remove(self, name: str) -> None:
        self._checks.pop(name, None)

    def checkups(self, kind: Kind) -> tuple[Checkup, ...]:
        """Returns the checks of a kind in the order of registration; `ping` if there is none."""
        found = tuple(one.checkup for one in self._checks.values() if kind in one.kinds)
        return found or (self._ping,)

    async def examine(self, kind: Kind, excluded: Iterable[str] = ()) -> Report:
        """Run all checks of a kind concurrently, except the excluded ones."""
        checkups, left_out = self.checkups(kind), frozenset(excluded)
        async with asyncio.TaskGroup() as group:
            runs = [
                None if one.name in left_out else group.create_task(one.run(self._patience))
                for one in checkups
            ]
        outcomes = tuple(
            run.result() if run else Outcome(one.name, excluded=True)
            for one, run in zip(checkups, runs, strict=True)
        )
        return Report(kind, outcomes, tuple(sorted(left_out - {one.name for one in checkups})))

    async def examine_one(self, kind: Kind, name: str) -> Outcome | None:
        """Run one check. Returns None if this kind has no check of that name."""
        for one in self.checkups(kind):
            if one.name == name:
                return await one.run(self._patience)
        return None


def render(report: Report, *, verbose: bool) -> tuple[int, str]:
    """Returns status code and text, identical to those of a Go component."""
    if not report.failures and not verbose:
        return 200, "ok"
    lines = [_line(outcome) for outcome in report.outcomes]
    if report.unknown:
        names = ",".join(json.dumps(name) for name in report.unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append(f"{report.kind} check {'failed' if report.failures else 'passed'}")
    return (500 if report.failures else 200), "\n".join(lines) + "\n"


def _line(outcome: Outcome) -> str:
    if outcome.excluded:
        return f"[+]{outcome.name} excluded: ok"
    if outcome.failure is not None:
        return f"[-]{outcome.name} failed: reason withheld"
    return f"[+]{outcome.name} ok"


def health_routes(health: Health, observe: Observe) -> Routes:
    """Returns the three endpoints, each with one path per check; `observe` gets each outcome."""
    return Routes(
        exact={f"/{kind}": _all(health, kind, observe) for kind in Kind},
        below={f"/{kind}/": _one(health, kind) for kind in Kind},
    )


def _all(health: Health, kind: Kind, observe: Observe) -> Handler:
    async def handle(request: Request) -> Response:
        report = await health.examine(kind, request.values("exclude"))
        for outcome in report.outcomes:
            if not outcome.excluded:
                observe(kind, outcome)
        _log_failures(kind, report.failures)
        status, body = render(report, verbose="verbose" in request.query)
        return responses.text(body, status=status)

    return handle


def _one(health: Health, kind: Kind) -> Handler:
    async def handle(request: Request) -> Response:
        outcome = await health.examine_one(kind, request.path.removeprefix(f"/{kind}/"))
        if outcome is None:
            return responses.not_found()
        if outcome.failure is not None:
            return responses.text(f"internal server error: {outcome.failure}\n", status=500)
        return responses.text("ok")

    return handle


def _log_failures(kind: Kind, failures: Sequence[Outcome]) -> None:
    for outcome in failures:
        log.info("Health check failed", v=2, kind=kind, check=outcome.name, why=outcome.failure)


class Slis:
    """Two metrics of the outcomes of health checks, updated when a health endpoint is read."""

    def __init__(self) -> None:
        self.registry = MetricRegistry()
        self._now = self.registry.gauge(
            "kubernetes_healthcheck",
            "[STABLE] 1 if the health check succeeded when last asked, else 0",
            ("name", "type"),
        )
        self._count = self.registry.counter(
            "kubernetes_healthchecks_total",
            "[STABLE] Outcomes of all health checks",
            ("name", "type", "status"),
        )

    def observe(self, kind: Kind, outcome: Outcome) -> None:
        status = "success" if outcome.failure is None else "error"
        self._now.labels(outcome.name, kind).set(outcome.failure is None)
        self._count.labels(outcome.name, kind, status).inc()

    def reset(self) -> None:
        self._now.clear()
        self._count.clear()


def sli_routes(slis: Slis) -> Routes:
    show = exposing(slis.registry)

    async def handle(request: Request) -> Response:
        if request.method != "DELETE":
            return await show(request)
        slis.reset()
        return responses.text("metrics reset\n")

    return Routes({"/metrics/slis": handle})
