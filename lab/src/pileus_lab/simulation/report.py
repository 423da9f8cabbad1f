"""How results are written: the summary of many seeds, traces, commands that repeat a seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pileus.controllers.node.descriptor import NODE
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.service.descriptor import SERVICE
from pileus.version import PILEUS
from pileus_lab.simulation.campaign import Summary
from pileus_lab.simulation.environment.steps import FORMAT
from pileus_lab.simulation.kinds import FaultKind, Place
from pileus_lab.simulation.play import Outcome
from pileus_lab.simulation.scenario import Scenario

NONE = "none"
"""How an empty schedule is written."""
HEAD = 4
"""Lines of a trace that say how to repeat it."""


class UnusableTrace(Exception):
    """The file is not a trace that this version can compare; the message says why."""


@dataclass(frozen=True, slots=True)
class TraceHead:
    """The header of a trace: how to repeat it."""

    seed: int
    scenario: str
    only: tuple[int, ...] | None
    cloud: str = ""
    """Empty: the local one."""


def read_numbers(text: str) -> tuple[int, ...]:
    """Returns comma-separated numbers. Raises `ValueError`."""
    return () if text == NONE else tuple(int(one) for one in text.split(","))


def repeating(
    seed: int, scenario: str, only: Sequence[int] | None = None, *, cloud: str = ""
) -> str:
    """The command that repeats a seed."""
    kept = f" --only {','.join(map(str, only)) or NONE}" if only is not None else ""
    where = f" --cloud {cloud}" if cloud else ""
    return f"pileus simulate --first-seed {seed} --seeds 1 --scenario {scenario}{kept}{where}"


def written_trace(outcome: Outcome, only: Sequence[int] | None, *, cloud: str = "") -> str:
    schedule = outcome.schedule
    where = f" cloud {cloud}" if cloud else ""
    kept = "all" if only is None else ",".join(map(str, only)) or NONE
    head = [
        FORMAT,
        f"pileus {PILEUS}",
        f"seed {schedule.seed} scenario {schedule.scenario} items {kept}{where}",
        f"setup {schedule.setup.name}, managers {schedule.replicas}",
    ]
    verdict = str(outcome.violation or "all invariants held")
    return "\n".join([*head, *outcome.lines, f"verdict: {verdict}", ""])


def read_head(text: str) -> TraceHead:
    """Raises `UnusableTrace`."""
    lines = text.split("\n")
    if lines[0] != FORMAT:
        raise UnusableTrace(f'it is not a trace: it does not begin with "{FORMAT}"')
    if len(lines) < HEAD or not lines[1].startswith("pileus "):
        raise UnusableTrace("its first lines are damaged: the seed is missing")
    if lines[1] != f"pileus {PILEUS}":
        raise UnusableTrace(
            f"it was written by {lines[1]}, and this is {PILEUS}: "
            "the same seed may behave differently in another version"
        )
    words = lines[2].split()
    try:
        seed, scenario, kept = int(words[1]), words[3], words[5]
        only = None if kept == "all" else read_numbers(kept)
    except (IndexError, ValueError) as error:
        raise UnusableTrace(f'its third line is damaged: "{lines[2]}"') from error
    return TraceHead(seed, scenario, only, "".join(words[7:8]))


def first_difference(before: str, after: str) -> str:
    """Where two traces first differ; empty if they are equal."""
    old, new = before.split("\n"), after.split("\n")
    for number, (was, now) in enumerate(zip(old, new, strict=False), 1):
        if was != now:
            return f"line {number}\n  then: {was}\n  now:  {now}"
    if len(old) != len(new):
        return f"line {min(len(old), len(new)) + 1}: {len(old)} lines then, {len(new)} now"
    return ""


WIDTH = 100
"""Columns if the width is unknown."""
NEVER = "."
"""Shown where a fault never occurred."""
HOUR = 3600.0
ASKERS = {
    Place.API: frozenset({
        "events",
        "healthz",
        "leader-election",
        "shared-informers",
        *(names.identity for names in (NODE, ROUTE, SERVICE)),
    }),
    Place.WATCH: frozenset({"shared-informers"}),
    Place.CLOUD: frozenset({"cloud balancers", "cloud instances", "cloud routes"}),
    Place.HOST: frozenset({"blkid", "mkfs", "mount", "read", "umount"}),
}
"""All combinations, so that those that never occurred are shown as well."""


def totals_text(
    summary: Summary,
    scenario: Scenario,
    wall_seconds: float,
    *,
    cloud: str = "",
    width: int = WIDTH,
) -> Iterator[str]:
    """Lines of at most `width` columns, if that is enough for names and commands."""
    yield f"{_played(summary)}, {len(summary.failed)} failed"
    yield (
        f"{summary.virtual_seconds / HOUR:.1f} hours of virtual time in {_lasted(wall_seconds)}; "
        f"{summary.per_minute_and_core:.0f} seeds per minute and core"
    )
    yield ""
    yield "deeds:"
    yield from _grid({kind.value: summary.done[kind] for kind in scenario.deeds}, width)
    for place in Place:
        kinds = [kind for kind in scenario.faults if kind.place is place]
        if kinds:
            yield ""
            yield from _coverage(summary, place, kinds, width)
    yield ""
    yield "slowest seeds:"
    for one in summary.slowest:
        yield f"  {one.seconds:.2f} s  {repeating(one.seed, scenario.name, cloud=cloud)}"


def _played(summary: Summary) -> str:
    if summary.is_whole:
        return f"{summary.seeds} seeds"
    return f"stopped after {summary.seeds} of {summary.wanted} seeds"


def _lasted(seconds: float) -> str:
    return f"{seconds / HOUR:.2f} hours" if seconds >= HOUR else f"{seconds:.0f} s"


def _coverage(
    summary: Summary, place: Place, kinds: Sequence[FaultKind], width: int
) -> Iterator[str]:
    """A table: which fault hit what, how often."""
    known = {who for kind, who in summary.struck if kind in kinds}
    rows = sorted(ASKERS[place] | known)
    struck = sum(count for (kind, _), count in summary.struck.items() if kind in kinds)
    yield f"faults of {place} calls, {struck} in all, by caller ({NEVER}: never):"
    columns = {
        kind.value.partition("-")[2]: [_count(summary, kind, who) for who in rows] for kind in kinds
    }
    yield from _tables([who.removeprefix(f"{place} ") for who in rows], columns, width)


def _count(summary: Summary, kind: FaultKind, who: str) -> str:
    return str(summary.struck[kind, who] or NEVER)


def _tables(rows: Sequence[str], columns: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    """Splits the table below each other to fit the width."""
    first = max(map(len, rows))
    wide = {name: max(len(name), *map(len, cells)) for name, cells in columns.items()}
    for names in _fitting(wide, width - first - 2):
        yield "  " + " " * first + "".join(f"  {name:>{wide[name]}}" for name in names)
        for number, row in enumerate(rows):
            cells = "".join(f"  {columns[name][number]:>{wide[name]}}" for name in names)
            yield f"  {row:<{first}}{cells}"


def _fitting(wide: Mapping[str, int], width: int) -> Iterator[list[str]]:
    """The columns in groups, none wider than the width."""
    group: list[str] = []
    for name in wide:
        if group and sum(wide[one] + 2 for one in (*group, name)) > width:
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def _grid(counts: Mapping[str, int], width: int) -> Iterator[str]:
    """Names and numbers, several in a line, in columns from top to bottom."""
    cells = [(name, str(count or NEVER)) for name, count in sorted(counts.items())]
    names = max((len(name) for name, _ in cells), default=0)
    numbers = max((len(number) for _, number in cells), default=0)
    across = max(1, (width - 2) // (names + numbers + 4))
    down = -(-len(cells) // across)
    for line in range(down):
        chosen = cells[line::down]
        yield "  " + "   ".join(f"{name:<{names}} {number:>{numbers}}" for name, number in chosen)
