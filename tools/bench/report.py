"""The results as text: the summary in the terminal, and a file for other programs."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.bench.goals import GOALS, State, Verdict
from tools.bench.results import Failed, Ratio, Results, Sample

COMPARED = {
    "wall": "time",
    "initialized": "time to the last node",
    "known": "time after the last node stopped",
    "cpu": "CPU",
    "peak": "peak memory",
    "resident": "memory at the end",
    "api_cpu": "API server CPU",
    "api_peak": "API server memory",
    "writes": "API writes",
    "calls": "cloud calls",
    "watch_mib": "watch bytes",
}
UNITS = {
    "wall": "s", "initialized": "s", "known": "s", "cpu": "s", "peak": "MiB", "resident": "MiB",
    "api_cpu": "s", "api_peak": "MiB", "writes": "", "calls": "", "watch_mib": "MiB", "events": "",
    "concurrency": "", "refused": "", "etcd_cpu": "s",
}  # fmt: skip
TITLES = {"go": "Go tuned", "shipped": "Go as shipped", "bare": "bare limit", "pileus": "Pileus"}
TERMS = {
    "Go tuned": "the Go manager with `--kube-api-qps=1000 --kube-api-burst=2000` and 30 workers",
    "Go as shipped": "the Go manager without flags, at sizes that it completes in half a minute",
    "Bare limit": "a program that makes the necessary writes and nothing else",
    "1.20x of Go": "Pileus needs 1.20 times what Go needs: below 1 Pileus is better, above 1 worse",
    "Spread": "the lowest and highest ratio of all repeats; a ratio without it is of one run",
    "Watch bytes": "what the API server sends on watches; the watch of the benchmark is included",
    "Peak memory": "the most memory that the process had at any time",
}
"""What a reader has to know before the results."""
SHOWN_UNKNOWN = 3
SAME = 1.02
"""Ratios up to here are not called worse: repeats differ by more."""


def verdicts(results: Results) -> list[Verdict]:
    """Returns the verdict on each goal, those that were missed first."""
    order = list(State)
    return sorted((goal.verdict(results) for goal in GOALS), key=lambda v: order.index(v.state))


def ratios(results: Results) -> list[tuple[str, str, str, Ratio]]:
    """Returns part, measure, other side and ratio of every comparison, the worst first."""
    found = [
        (part, measure, over, ratio)
        for part in results.parts()
        for measure in COMPARED
        for over in ("go", "shipped")
        if (ratio := results.ratio(part, measure, over)) is not None
    ]
    return sorted(found, key=lambda one: -one[3].middle)


def summary(results: Results) -> Iterator[str]:
    """Yields the lines of the summary: what is worse than Go, the goals, then the rest."""
    yield "Pileus beside the Go manager: " + "; ".join(
        f"{key} {value}" if key != "date" else value for key, value in results.about.items()
    )
    compared = ratios(results)
    worse = [one for one in compared if one[3].middle > SAME]
    yield ""
    yield "Worse than Go (Pileus / Go, median and spread over repeats)"
    yield from (_line(results, *one) for one in worse)
    if not worse:
        yield "  nothing" if compared else "  not compared"
    yield ""
    yield from _failures(results)
    yield "Goals"
    unknown = 0
    for verdict in verdicts(results):
        if verdict.state is State.UNKNOWN and (unknown := unknown + 1) > SHOWN_UNKNOWN:
            continue
        yield f"  {verdict.state:<13}{verdict.goal:<52}{verdict.measured}"
    if unknown > SHOWN_UNKNOWN:
        yield f"  and {unknown - SHOWN_UNKNOWN} more goals that this run does not measure"
    yield ""
    yield "Equal to Go or better"
    yield from (_line(results, *one) for one in reversed(compared) if one[3].middle <= SAME)
    yield ""
    yield from _end_states(results)


def _line(results: Results, part: str, measure: str, over: str, ratio: Ratio) -> str:
    what, compared, shown = _cells(results, part, measure, over, ratio)
    return f"  {what:<48}{compared:<34}{shown}"


def _cells(
    results: Results, part: str, measure: str, over: str, ratio: Ratio
) -> tuple[str, str, str]:
    """Returns what was measured, the ratio with its spread, and both values."""
    unit = UNITS[measure]
    values = [results.middle(part, side, measure) or 0.0 for side in ("pileus", over)]
    shown = f"{number(values[0])} / {number(values[1])} {unit}".rstrip()
    beside = "" if over == "go" else f" ({TITLES[over]})"
    return f"{part}, {COMPARED[measure]}", str(ratio), f"{shown}{beside}"


def number(value: float) -> str:
    is_whole = value >= 100 or value == int(value)  # noqa: PLR2004 -- three digits
    return f"{value:,.0f}" if is_whole else f"{value:.2f}"


def figures(results: Results) -> Iterator[str]:
    """Yields every measure of every part and side, with its spread: for work on one manager."""
    for part, side in dict.fromkeys((one.part, one.side) for one in results.samples):
        yield f"{part}, {TITLES[side]}"
        samples = [one for one in results.samples if (one.part, one.side) == (part, side)]
        for measure in samples[0].values:
            found = sorted(results.values(part, side, measure))
            middle = number(results.middle(part, side, measure) or 0.0)
            spread = f"{number(found[0])} to {number(found[-1])}" if found[1:] else ""
            yield f"  {measure:<26}{middle:>10} {UNITS.get(measure, ''):<4}{spread}"
    yield ""


def _failures(results: Results) -> Iterator[str]:
    if results.failed:
        yield "Failed runs"
        for one in results.failed:
            side = TITLES.get(one.side, one.side)
            yield f"  {one.scenario}, {side}, repeat {one.repeat + 1}: {one.why}"
            yield from (f"    {line}" for line in one.log)
        yield ""
    if results.left_out:
        yield "Left out"
        yield from (f"  {each}" for each in results.left_out)
        yield ""


def _end_states(results: Results) -> Iterator[str]:
    for scenario, lines in results.differences.items():
        if not lines:
            yield f"End state of {scenario}: equal, object by object"
            continue
        yield f"End state of {scenario}: differences"
        yield from (f"  {line}" for line in lines)


HEAD = """# The performance report

`make bench` writes the results of the benchmark here, with date, machine and versions.
[Performance](../explanation/performance.md) explains how it measures.
"""


def markdown(results: Results, *, has_picture: bool) -> str:
    """Returns the page that leads to the report: the picture and the summary."""
    files = "The same with plots: report.html. All samples: results.json.\n"
    about = "; ".join(f"{key}: {value}" for key, value in results.about.items())
    terms = "".join(f"- **{term}**: {text}.\n" for term, text in TERMS.items())
    shown = "\n## Plots\n\n![Plots of the results](report.png)\n" if has_picture else ""
    compared = ratios(results)
    worse = [_cells(results, *one) for one in compared if one[3].middle > SAME]
    better = [_cells(results, *one) for one in reversed(compared) if one[3].middle <= SAME]
    goals = [(str(one.state), one.goal, one.measured) for one in verdicts(results)]
    ends = "\n".join((*_failures(results), *_end_states(results)))
    return (
        f"{HEAD}\n{files}\nThis run: {about}.\n\n## Terms\n\n{terms}"
        f"\n## Worse than Go\n\n{_table(('measure', 'of Go', 'Pileus / Go'), worse)}"
        f"\n## Goals\n\n{_table(('state', 'goal', 'measured'), goals)}"
        f"\n## Equal to Go or better\n\n{_table(('measure', 'of Go', 'Pileus / Go'), better)}"
        f"\n## End states\n\n```text\n{ends}\n```\n{shown}"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def save(results: Results, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(results), indent=1, ensure_ascii=False) + "\n")


def load(file: Path) -> Results:
    """Returns results that were saved."""
    kept = json.loads(file.read_text())
    return Results(
        about=kept["about"],
        samples=[Sample(**each) for each in kept["samples"]],
        failed=[_failed(each) for each in kept["failed"]],
        differences=kept["differences"],
        left_out=kept["left_out"],
    )


def _failed(kept: dict[str, Any]) -> Failed:
    log = tuple(kept.pop("log", ()))
    return Failed(**kept, log=log)
