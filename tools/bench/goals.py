"""The goals of Pileus' performance, and whether a benchmark met them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tools.bench.results import Results, exponent

GROWTH = (500, 1000, 2000, 5000, 10000)
NODE_EVENTS = 1000
SERVICE_EVENTS = 2000


class State(StrEnum):
    MISSED = "missed"
    MET = "met"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: str
    state: State
    measured: str = ""


Judge = Callable[[Results], tuple[bool, str] | None]
"""Returns whether the goal is met and what was measured; None if it was not measured."""


@dataclass(frozen=True, slots=True)
class Goal:
    text: str
    judge: Judge

    def verdict(self, results: Results) -> Verdict:
        judged = self.judge(results)
        if judged is None:
            return Verdict(self.text, State.UNKNOWN)
        met, measured = judged
        return Verdict(self.text, State.MET if met else State.MISSED, measured)


def at_most(part: str, measure: str, bound: float, unit: str) -> Judge:
    """The median of Pileus is at most the bound."""

    def judge(results: Results) -> tuple[bool, str] | None:
        found = results.values(part, "pileus", measure)
        middle = results.middle(part, "pileus", measure)
        if middle is None:
            return None
        spread = f" ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else ""
        reference = results.middle(part, "go", measure)
        beside = "" if reference is None else f"; Go {reference:.2f} {unit}"
        return middle <= bound, f"{middle:.2f} {unit}{spread}{beside}"

    return judge


def at_most_of(part: str, measure: str, over: str, bound: float) -> Judge:
    """Pileus over another side is at most the bound."""

    def judge(results: Results) -> tuple[bool, str] | None:
        ratio = results.ratio(part, measure, over)
        return None if ratio is None else (ratio.middle <= bound, f"{ratio} of {over}")

    return judge


def times_faster(part: str, over: str, bound: float, measure: str = "wall") -> Judge:
    """Another side takes so many times as long as Pileus."""

    def judge(results: Results) -> tuple[bool, str] | None:
        ratio = results.ratio(part, measure, "pileus", side=over)
        return None if ratio is None else (ratio.middle >= bound, f"{ratio} faster than {over}")

    return judge


def of_the_limit(part: str, bound: float) -> Judge:
    """Pileus reaches a share of the bare limit."""

    def judge(results: Results) -> tuple[bool, str] | None:
        ratio = results.ratio(part, "wall", "pileus", side="bare")
        if ratio is None:
            return None
        spread = f" ({ratio.low:.0%} to {ratio.high:.0%})" if ratio.runs > 1 else ""
        return ratio.middle >= bound, f"{ratio.middle:.0%}{spread} of the bare limit"

    return judge


def at_least(part: str, measure: str, bound: float, unit: str) -> Judge:
    def judge(results: Results) -> tuple[bool, str] | None:
        found = results.values(part, "pileus", measure)
        return (min(found) >= bound, f"{min(found):,.0f} {unit}") if found else None

    return judge


def grows(measure: str, bound: float) -> Judge:
    """The exponent of growth over the numbers of nodes is at most the bound."""

    def judge(results: Results) -> tuple[bool, str] | None:
        points = [
            (float(size), value)
            for size in GROWTH
            if (value := results.middle(f"{size:,} nodes", "pileus", measure)) is not None
        ]
        if len(points) < len(GROWTH):
            return None
        found = exponent(points)
        return None if found is None else (found <= bound, f"exponent {found:.2f}")

    return judge


def same_end_states(results: Results) -> tuple[bool, str] | None:
    if not results.differences:
        return None
    worse = sum(
        line.partition(": ")[2].startswith("only Go")
        for lines in results.differences.values()
        for line in lines
    )
    compared = ", ".join(results.differences)
    return not worse, f"{worse} kinds of values that only Go has (compared: {compared})"


GOALS = (
    Goal("1,000 nodes: not slower than Go tuned", at_most_of("1,000 nodes", "wall", "go", 1.0)),
    Goal("1,000 nodes: CPU ≤ 2.0 s", at_most("1,000 nodes", "cpu", 2.0, "s")),
    Goal("1,000 nodes: memory ≤ 50 MiB", at_most("1,000 nodes", "peak", 50, "MiB")),
    Goal("5,000 nodes: not slower than Go tuned", at_most_of("5,000 nodes", "wall", "go", 1.0)),
    Goal("5,000 nodes: CPU ≤ 10 s", at_most("5,000 nodes", "cpu", 10, "s")),
    Goal("5,000 nodes: memory ≤ 92 MiB", at_most("5,000 nodes", "peak", 92, "MiB")),
    Goal(
        "1,000 Services: not slower than Go tuned",
        at_most_of("1,000 Services", "wall", "go", 1.0),
    ),
    Goal("1,000 Services: CPU ≤ 2.5 s", at_most("1,000 Services", "cpu", 2.5, "s")),
    Goal("one node joins: all balancers ≤ 2 s", at_most("one node joins", "wall", 2.0, "s")),
    Goal(
        "fifty nodes join: last node initialized ≤ 10.2 s",
        at_most("fifty nodes join", "initialized", 10.2, "s"),
    ),
    Goal("fifty nodes join: all balancers ≤ 15 s", at_most("fifty nodes join", "wall", 15, "s")),
    Goal(
        "fifty nodes join: cloud calls ≤ 1/3 of Go's",
        at_most_of("fifty nodes join", "calls", "go", 1 / 3),
    ),
    Goal("1,000 routes: ≤ 5 s", at_most("1,000 routes", "wall", 5, "s")),
    Goal("1,000 routes: CPU ≤ 1.7 s", at_most("1,000 routes", "cpu", 1.7, "s")),
    Goal("start to the first node ≤ 0.75 s", at_most("start", "wall", 0.75, "s")),
    Goal("idle with 1,000 nodes ≤ 45 MiB", at_most("start", "resident", 45, "MiB")),
    Goal("failover after SIGKILL ≤ 16 s", at_most("SIGKILL", "wall", 16, "s")),
    Goal("failover after SIGTERM < 1 s", at_most("SIGTERM", "wall", 1.0, "s")),
    Goal("nodes: ≥ 15x faster than Go as shipped", times_faster("200 nodes", "shipped", 15)),
    Goal("Services: ≥ 15x faster than Go as shipped", times_faster("100 Services", "shipped", 15)),
    Goal("routes: ≥ 10x faster than Go as shipped", times_faster("400 routes", "shipped", 10)),
    Goal("limited cloud: ≥ 5x faster than Go tuned", times_faster("limited cloud", "go", 5)),
    Goal("limited cloud: no call refused", at_most("limited cloud", "refused", 0, "calls")),
    Goal("1,000 nodes: ≥ 90 % of the bare limit", of_the_limit("1,000 nodes", 0.9)),
    Goal("1,000 Services: ≥ 90 % of the bare limit", of_the_limit("1,000 Services", 0.9)),
    Goal(
        "1,000 nodes: API server CPU ≤ 1.1x Go's", at_most_of("1,000 nodes", "api_cpu", "go", 1.1)
    ),
    Goal(
        "1,000 Services: API server CPU ≤ 1.1x Go's",
        at_most_of("1,000 Services", "api_cpu", "go", 1.1),
    ),
    Goal(
        "1,000 nodes: no event left out", at_least("1,000 nodes", "events", NODE_EVENTS, "events")
    ),
    Goal(
        "1,000 Services: no event left out",
        at_least("1,000 Services", "events", SERVICE_EVENTS, "events"),
    ),
    Goal("restart, nothing changed: 0 writes", at_most("restart", "writes", 0, "writes")),
    Goal("outage: known ≥ 3x faster than by Go tuned", times_faster("outage", "go", 3, "known")),
    Goal("time grows linearly up to 10,000 nodes", grows("wall", 1.1)),
    Goal("CPU grows linearly up to 10,000 nodes", grows("cpu", 1.1)),
    Goal("memory grows linearly up to 10,000 nodes", grows("peak", 1.1)),
    Goal("end states have everything that Go's have", same_end_states),
)
