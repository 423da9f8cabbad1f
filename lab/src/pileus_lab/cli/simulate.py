"""`pileus simulate`: test the manager under schedules of injected faults, in virtual time."""

import os
import signal
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pileus.cli.arguments import Argument, Given, Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import CLEAR, Ink, Style, Terminal
from pileus.clock import since_boot
from pileus.cloud.errors import CloudError
from pileus_lab.simulation.scenario import SCENARIOS, Scenario

if TYPE_CHECKING:
    from pileus_lab.simulation.campaign import Report, Summary

BETWEEN = 0.2
"""Seconds between two updates on a terminal; elsewhere a minute."""
MINUTE = 60.0
LONGEST_BAR = 40


class SeedsProgress:
    """Called after each seed; writes to standard error."""

    def __init__(self, terminal: Terminal) -> None:
        self._stream = terminal.err
        self._width = terminal.width(terminal.err)
        colour = bool(self._width) and not terminal.environment.get("NO_COLOR")
        self._style = Style(self._width, colour)
        self._started = self._shown = since_boot()
        self._named: set[int] = set()

    def tell(self, summary: "Summary") -> None:
        if summary.is_whole:
            return
        self._name_failed(summary)
        now = since_boot()
        if now - self._shown < (BETWEEN if self._width else MINUTE):
            return
        self._shown = now
        text = progress_text(summary, now - self._started)
        if self._width:
            drawn = drawn_bar(summary, text, self._width - 1)
            if summary.failed:
                drawn = self._style.inked(drawn, Ink.RED)
            text = f"{CLEAR}{drawn}"
        else:
            text = f"{text}\n"
        self._stream.write(text)
        self._stream.flush()

    def _name_failed(self, summary: "Summary") -> None:
        for report in summary.failed:
            if report.seed not in self._named:
                self._named.add(report.seed)
                line = self._style.inked(failure_text(report), Ink.RED)
                self._stream.write(f"{CLEAR if self._width else ''}{line}\n")
                self._stream.flush()

    def end(self) -> None:
        if self._width:
            self._stream.write(CLEAR)
            self._stream.flush()


def progress_text(summary: "Summary", seconds: float) -> str:
    per_second = summary.seeds / seconds if seconds else 0.0
    left = (summary.wanted - summary.seeds) / per_second if per_second else 0.0
    return (
        f"{summary.seeds}/{summary.wanted} seeds, {len(summary.failed)} failed, "
        f"{per_second * MINUTE:.0f} a minute, {duration_text(left)} left"
    )


def failure_text(report: "Report") -> str:
    """One line; the summary has the details and the command that repeats the seed."""
    return f"seed {report.seed} failed: {report.violation.partition(chr(10))[0]}"


def duration_text(seconds: float) -> str:
    minutes = round(seconds / MINUTE)
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < MINUTE else f"{minutes // 60} h {minutes % 60:02} min"


def drawn_bar(summary: "Summary", text: str, width: int) -> str:
    """Adds a bar before the text, as wide as there is room."""
    room = min(LONGEST_BAR, width - len(text) - len("[] "))
    if room < 1:
        return text[:width]
    full = room * summary.seeds // summary.wanted
    return f"[{'#' * full}{' ' * (room - full)}] {text}"


if TYPE_CHECKING:
    from pileus_lab.simulation.campaign import Summary
    from pileus_lab.simulation.play import Outcome
    from pileus_lab.simulation.schedule import Schedule

HELP_WIDTH = 78
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def _scenario_text(scenario: Scenario) -> str:
    width = max(map(len, SCENARIOS)) + 2
    text = f"  {scenario.name:<{width}}{scenario.text}"
    return textwrap.fill(text, HELP_WIDTH, subsequent_indent=" " * (width + 2))


USAGE = Usage(
    "Run one to three real managers against an embedded API server and a cloud in one process, on "
    "a virtual clock, with users, machines, network, cloud and crashes as the seed schedules them. "
    "Check that nothing is lost, leaked or changed that belongs to others. The same seed gives the "
    "same run on every machine. Exits with 0 if all invariants held, with 1 if not or if the input "
    "is invalid, with 130 after Ctrl-C (with a summary of the seeds that ran).",
    (
        Argument(name="--seeds", text="Number of seeds to run.", kind=int, default=100),
        Argument(name="--first-seed", text="First seed.", kind=int, default=1),
        Argument(
            name="--jobs",
            text="Processes that run seeds in parallel; default: the number of cores.",
            kind=int,
            default=os.cpu_count() or 1,
        ),
        Argument(
            name="--scenario",
            text="Scenario, as listed below.",
            default="mixed",
            choices=tuple(SCENARIOS),
        ),
        Argument(
            name="--cloud",
            text="Cloud to run against: local (default), openstack, or MODULE:NAME.",
            default="",
        ),
        Argument(
            name="--trace",
            text="File for the trace of the first seed that fails, or else of the last one.",
        ),
        Argument(name="--compare", text="Trace file whose seed is run again and compared."),
        Argument(
            name="--only",
            text="Comma-separated numbers of the schedule items to run, or none.",
        ),
        Argument(
            name="--shrink",
            text="Find a smaller schedule for the first seed that fails.",
            kind=bool,
        ),
    ),
    "\n".join(("\nScenarios:\n", *map(_scenario_text, SCENARIOS.values()), "")),
)


MOST_SEEDS = 10_000_000


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        given = parse(program, USAGE, arguments)
        only = _numbers(given.text("only"))
        _check(given, only)
        kind = _Kind(given.text("scenario"), given.text("cloud"))
        kind.check()
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    try:
        if given.text("compare"):
            return _compare(Path(given.text("compare")), terminal)
        if only is not None:
            return _play_one(given, kind, only, terminal)
        return _play_many(given, kind, terminal)
    except CloudError as error:
        return terminal.refuse(
            f"--cloud: {kind.cloud or 'the local cloud'} cannot be simulated: {error}"
        )


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is run: the same for all seeds of one command."""

    scenario: str
    cloud: str
    """As MODULE:NAME; empty: the local cloud."""

    def check(self) -> None:
        """Raises `UsageError` if there is no such cloud, or if it does not fit the scenario."""
        from pileus_lab.simulation.clouds import loading  # noqa: PLC0415

        try:
            make = loading.load(self.cloud)
            if SCENARIOS[self.scenario].has_volumes:
                loading.check_volumes(self.cloud or "local", make)
        except loading.UnusableCloud as error:
            raise UsageError(f"--cloud: {error}") from error

    def schedule(self, seed: int) -> "Schedule":
        from pileus_lab.simulation.schedule import draw  # noqa: PLC0415

        return draw(seed, SCENARIOS[self.scenario])

    def outcome(self, seed: int, only: tuple[int, ...] | None = None) -> "Outcome":
        from pileus_lab.simulation.clouds.loading import load  # noqa: PLC0415
        from pileus_lab.simulation.play import play  # noqa: PLC0415

        schedule = self.schedule(seed)
        return play(schedule if only is None else schedule.only(only), load(self.cloud))

    def repeating(self, seed: int, only: Sequence[int] | None = None) -> str:
        from pileus_lab.simulation.report import repeating  # noqa: PLC0415

        return repeating(seed, self.scenario, only, cloud=self.cloud)


def _check(given: Given, only: tuple[int, ...] | None) -> None:
    seeds, jobs = given.number("seeds") or 0, given.number("jobs") or 0
    if seeds < 1 or jobs < 1:
        raise UsageError("--seeds and --jobs must be at least 1")
    if seeds > MOST_SEEDS:
        raise UsageError(
            f"--seeds must be at most {MOST_SEEDS}", "continue later with --first-seed"
        )
    if (given.number("first-seed") or 0) < 0:
        raise UsageError("--first-seed must be 0 or more")
    folder = Path(given.text("trace")).parent
    if given.text("trace") and not folder.is_dir():
        raise UsageError(f"cannot write the trace to {given.text('trace')}: no folder {folder}")
    if only is not None and seeds != 1:
        raise UsageError("--only needs a single seed", "also give --seeds 1 and --first-seed")


def _numbers(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    from pileus_lab.simulation.report import read_numbers  # noqa: PLC0415

    try:
        return read_numbers(text)
    except ValueError as error:
        raise UsageError(f'--only takes comma-separated numbers, not "{text}"') from error


def _play_many(given: Given, kind: _Kind, terminal: Terminal) -> int:
    from pileus_lab.simulation.campaign import campaign  # noqa: PLC0415 -- takes a moment to load
    from pileus_lab.simulation.report import WIDTH, totals_text  # noqa: PLC0415

    first, count = given.number("first-seed") or 0, given.number("seeds") or 0
    seeds, jobs = range(first, first + count), given.number("jobs") or 1
    progress = SeedsProgress(terminal)
    started = since_boot()
    with _interruptible() as stopped:
        summary = campaign(
            seeds,
            kind.scenario,
            jobs=jobs,
            told=progress.tell,
            stopped=stopped,
            cloud=kind.cloud,
        )
    progress.end()
    width = min(terminal.width(terminal.out) or WIDTH, WIDTH)
    lasted = since_boot() - started
    scenario = SCENARIOS[kind.scenario]
    for line in totals_text(summary, scenario, lasted, cloud=kind.cloud, width=width):
        terminal.out.write(f"{line}\n")
    _report_failures(summary, kind, terminal)
    if not summary.is_whole:
        return INTERRUPTED
    chosen = summary.failed[0].seed if summary.failed else seeds[-1]
    if given.is_set("shrink") and summary.failed:
        _shrink(chosen, kind, terminal)
    if given.text("trace"):
        return _write_trace(given, kind.outcome(chosen), terminal) or bool(summary.failed)
    return 1 if summary.failed else 0


@contextmanager
def _interruptible() -> Generator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: seeds in progress are then ended cleanly."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _play_one(given: Given, kind: _Kind, only: tuple[int, ...], terminal: Terminal) -> int:
    schedule = kind.schedule(given.number("first-seed") or 0)
    unknown = sorted({*only} - {item.number for item in schedule.items})
    if unknown:
        told = f"--only {unknown[0]}: seed {schedule.seed} has items 1 to {len(schedule.items)}"
        return terminal.refuse(told, "--trace FILE without --only shows them all")
    outcome = kind.outcome(schedule.seed, only)
    terminal.out.write(f"{outcome.violation or 'all invariants held'}\n")
    code = _write_trace(given, outcome, terminal, only) if given.text("trace") else 0
    return code or (1 if outcome.violation else 0)


def _report_failures(summary: "Summary", kind: _Kind, terminal: Terminal) -> None:
    for report in summary.failed:
        terminal.out.write(f"\nseed {report.seed} failed: {report.violation}\n")
        terminal.out.write(f"  repeat: {kind.repeating(report.seed)}\n")


def _shrink(seed: int, kind: _Kind, terminal: Terminal) -> None:
    from pileus_lab.simulation.clouds.loading import load  # noqa: PLC0415
    from pileus_lab.simulation.play import shrink  # noqa: PLC0415

    outcome = shrink(kind.schedule(seed), make_cloud=load(kind.cloud))
    items = outcome.schedule.items
    numbers = [item.number for item in items]
    terminal.out.write(f"\nseed {seed}, reduced: {outcome.violation}\n")
    for item in items:
        terminal.out.write(f"  {item}\n")
    terminal.out.write(f"  repeat: {kind.repeating(seed, numbers)}\n")


def _write_trace(
    given: Given, outcome: "Outcome", terminal: Terminal, only: tuple[int, ...] | None = None
) -> int:
    from pileus_lab.simulation.report import written_trace  # noqa: PLC0415

    path = Path(given.text("trace"))
    try:
        path.write_text(written_trace(outcome, only, cloud=given.text("cloud")))
    except OSError as error:
        return terminal.refuse(f"cannot write the trace to {path}: {error.strerror}")
    terminal.out.write(f"\ntrace of seed {outcome.schedule.seed}: {path}\n")
    return 0


def _compare(path: Path, terminal: Terminal) -> int:
    from pileus_lab.simulation.report import (  # noqa: PLC0415
        UnusableTrace,
        first_difference,
        read_head,
        written_trace,
    )

    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        head = read_head(text)
    except OSError as error:
        return terminal.refuse(f"cannot read the trace {path}: {error.strerror}")
    except UnusableTrace as error:
        return terminal.refuse(f"cannot use the trace {path}: {error}")
    if head.scenario not in SCENARIOS:
        return terminal.refuse(f'the trace {path} is of an unknown scenario "{head.scenario}"')
    kind = _Kind(head.scenario, head.cloud)
    try:
        kind.check()
    except UsageError as error:
        return terminal.refuse(f"the trace {path} cannot be played again: {error}")
    outcome = kind.outcome(head.seed, head.only)
    parted = first_difference(text, written_trace(outcome, head.only, cloud=head.cloud))
    terminal.out.write(f"differs from {path} at {parted}\n" if parted else "the same\n")
    return 1 if parted else 0
