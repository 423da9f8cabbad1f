"""How outcomes are written down: the trace's file, and the command that repeats a seed."""

from collections.abc import Sequence
from dataclasses import dataclass

from pileus.version import PILEUS
from pileus_lab.simulation.play import Outcome
from pileus_lab.simulation.trace import FORMAT

NONE = "none"
"""How a schedule is written of which nothing is left."""
HEAD = 4
"""Lines of a trace that say how to play it again."""


class UnusableTrace(Exception):
    """The file is no trace that this version can compare; the text says why."""


@dataclass(frozen=True, slots=True)
class TraceHead:
    """What the first lines of a trace say: how to play it again."""

    seed: int
    scenario: str
    only: tuple[int, ...] | None
    cloud: str = ""
    """Empty: the local one."""


def read_numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between. Errors: `ValueError`."""
    return () if text == NONE else tuple(int(one) for one in text.split(","))


def repeating(
    seed: int, scenario: str, only: Sequence[int] | None = None, *, cloud: str = ""
) -> str:
    """The one command that plays a seed again."""
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
    verdict = str(outcome.violation or "everything held")
    return "\n".join([*head, *outcome.lines, f"verdict: {verdict}", ""])


def read_head(text: str) -> TraceHead:
    """Errors: `UnusableTrace`."""
    lines = text.split("\n")
    if lines[0] != FORMAT:
        raise UnusableTrace(f'it is no trace of this format: it does not begin with "{FORMAT}"')
    if len(lines) < HEAD or not lines[1].startswith("pileus "):
        raise UnusableTrace("its first lines are damaged: they do not say what was played")
    if lines[1] != f"pileus {PILEUS}":
        raise UnusableTrace(
            f"it was written by {lines[1]}, and this is {PILEUS}: "
            "the same seed need not do the same in another version"
        )
    words = lines[2].split()
    try:
        seed, scenario, kept = int(words[1]), words[3], words[5]
        only = None if kept == "all" else read_numbers(kept)
    except (IndexError, ValueError) as error:
        raise UnusableTrace(f'its third line is damaged: "{lines[2]}"') from error
    return TraceHead(seed, scenario, only, "".join(words[7:8]))


def first_difference(before: str, after: str) -> str:
    """Where two traces part, in words; empty if they are equal."""
    old, new = before.split("\n"), after.split("\n")
    for number, (was, now) in enumerate(zip(old, new, strict=False), 1):
        if was != now:
            return f"line {number}\n  then: {was}\n  now:  {now}"
    if len(old) != len(new):
        return f"line {min(len(old), len(new)) + 1}: {len(old)} lines then, {len(new)} now"
    return ""
