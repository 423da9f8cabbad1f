"""`/healthz`, `/livez` and `/readyz`: the register of checks, and how their outcomes are shown."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

from pileus.server import answer
from pileus.server.checkup import Check, Checkup, Outcome
from pileus.server.router import Handler, Routes
from pileus.telemetry.log import Log

PATIENCE = 5.0
"""Seconds that a check may take."""

log = Log(__name__)

Observe = Callable[["Kind", Outcome], None]


class Kind(StrEnum):
    HEALTHZ = "healthz"
    LIVEZ = "livez"
    READYZ = "readyz"


@dataclass(frozen=True, slots=True)
class Report:
    """What all checks of one kind said."""

    kind: Kind
    outcomes: tuple[Outcome, ...]
    unknown: tuple[str, ...] = ()
    """Names that were to be excluded, but that no check has."""

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.failure is not None)


@dataclass(frozen=True, slots=True)
class _Registered:
    checkup: Checkup
    kinds: frozenset[Kind]


class Health:
    """The checks of this process; they come and go while it runs."""

    def __init__(self, *, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._checks: dict[str, _Registered] = {}
        self._ping = Checkup("ping", lambda: None)

    def add(self, name: str, check: Check, *, live: bool = True, ready: bool = True) -> None:
        """Register a check for `/livez` and `/readyz` if so marked.

        `/healthz` counts as liveness: manifests written for the Go program probe it in order to
        restart what is ill, and somebody who is only not ready yet is not.
        """
        if name in self._checks:
            raise ValueError(f"there is a health check {name!r} already")
        wanted = {Kind.HEALTHZ: live, Kind.LIVEZ: live, Kind.READYZ: ready}
        kinds = frozenset(kind for kind, wants in wanted.items() if wants)
        self._checks[name] = _Registered(Checkup(name, check), kinds)

    def remove(self, name: str) -> None:
        self._checks.pop(name, None)

    def checkups(self, kind: Kind) -> tuple[Checkup, ...]:
        """The checks of a kind, in the order in which they came; `ping` if there is none."""
        found = tuple(one.checkup for one in self._checks.values() if kind in one.kinds)
        return found or (self._ping,)

    async def examine(self, kind: Kind, excluded: Iterable[str] = ()) -> Report:
        """Run all checks of a kind, side by side, but the excluded ones."""
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
        """Run one check; None if this kind has none of that name."""
        for one in self.checkups(kind):
            if one.name == name:
                return await one.run(self._patience)
        return None


def render(report: Report, *, verbose: bool) -> tuple[int, str]:
    """Status code and text, word by word those of a Go component."""
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
    """The three endpoints, each with one path per check below it; `observe` hears each outcome."""
    return Routes(
        exact={f"/{kind}": _all(health, kind, observe) for kind in Kind},
        below={f"/{kind}/": _one(health, kind) for kind in Kind},
    )


def _all(health: Health, kind: Kind, observe: Observe) -> Handler:
    async def handle(request: web.BaseRequest) -> web.Response:
        report = await health.examine(kind, request.query.getall("exclude", []))
        for outcome in report.outcomes:
            if not outcome.excluded:
                observe(kind, outcome)
        _complain(kind, report.failures)
        status, body = render(report, verbose="verbose" in request.query)
        return answer.text(body, status=status)

    return handle


def _one(health: Health, kind: Kind) -> Handler:
    async def handle(request: web.BaseRequest) -> web.Response:
        outcome = await health.examine_one(kind, request.path.removeprefix(f"/{kind}/"))
        if outcome is None:
            return answer.not_found()
        if outcome.failure is not None:
            return answer.text(f"internal server error: {outcome.failure}\n", status=500)
        return answer.text("ok")

    return handle


def _complain(kind: Kind, failures: Sequence[Outcome]) -> None:
    for outcome in failures:
        log.info("Health check failed", v=2, kind=kind, check=outcome.name, why=outcome.failure)
