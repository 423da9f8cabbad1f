"""Runs the benchmark: Pileus beside the Go manager, on a real control plane and a simulated cloud.

python -m tools.bench                          all scenarios, about 20 minutes
python -m tools.bench --quick                  small sizes, about 3 minutes
python -m tools.bench nodes --only pileus      one scenario, one manager
python -m tools.bench --show results.json      the summary of an earlier run
"""

import argparse
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from tools.bench.bed import FAILED_LOGS, Outcome, Run
from tools.bench.end_state import State, differences
from tools.bench.plan import Planned, Round, fitting, planned, seconds_of
from tools.bench.plots import page, picture
from tools.bench.preflight import NotBuilt, binaries, has_reference, problems, this_machine
from tools.bench.processes import ProcessEnded, sides
from tools.bench.report import TITLES, figures, load, markdown, save, summary
from tools.bench.results import Failed, Results, Sample
from tools.bench.scenarios import QUICK_SCENARIOS, SCENARIOS, Scenario
from tools.build_control_plane import KUBERNETES

from pileus.suggest import did_you_mean
from pileus.version import PILEUS

FRAMEWORK = "0.37.1"
BUDGET, QUICK_BUDGET = 1260.0, 180.0
REPORT = Path("docs/performance")
REFUSED, INTERRUPTED = 2, 130
FOREVER = 1e9


def main(arguments: Sequence[str] | None = None) -> int:
    given, unknown = parser().parse_known_args(arguments)
    try:
        check_known(unknown)
        if given.show:
            print("\n".join(summary(kept(given.show))))
            return 0
        chosen = choose(given.scenarios, quick=given.quick)
        check(given)
        return benchmark(given, chosen, managers(given.only))
    except (Refused, NotBuilt) as error:
        print(f"bench: {error}", file=sys.stderr)
        return REFUSED


class Refused(Exception):
    """The benchmark does not run; the message says why, and what to do."""


def parser() -> argparse.ArgumentParser:
    names = ", ".join(each.name for each in (*SCENARIOS, *QUICK_SCENARIOS))
    made = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=names)
    made.add_argument("--only", help="managers to run: pileus, go, shipped, bare (comma-separated)")
    made.add_argument("--repeats", type=int, default=0, help="runs of each, whatever the time")
    made.add_argument("--quick", action="store_true", help="small sizes, about 3 minutes")
    made.add_argument("--anyway", action="store_true", help="run on a busy or small machine, too")
    made.add_argument("--report", type=Path, help="folder for results.json, report.html and .png")
    made.add_argument(
        "--show", type=Path, metavar="FILE", help="print the summary of a results.json"
    )
    return made


def check_known(unknown: Sequence[str]) -> None:
    """Raises Refused for arguments that the parser does not know."""
    for argument in unknown:
        flag = argument.partition("=")[0]
        flags = re.findall(r"--[a-z]+", parser().format_usage())
        raise Refused(f'unknown flag "{flag}"{did_you_mean(flag, flags)}')


def check(given: argparse.Namespace) -> None:
    """Raises Refused for what would fail only at the end of the run."""
    if given.repeats < 0:
        raise Refused(f"--repeats cannot be {given.repeats}: give 1 or more")
    if given.report:
        try:
            given.report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"--report: cannot create folder {given.report}: {error.strerror}"
            raise Refused(text) from error


def kept(file: Path) -> Results:
    """Returns the results in a file. Raises Refused if it has none."""
    try:
        return load(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f'"{file}" has no results of a benchmark: {error}') from error


def choose(names: Sequence[str], *, quick: bool) -> list[Scenario]:
    """Returns the scenarios with these names; without names, those of the whole benchmark."""
    known = {each.name: each for each in (*SCENARIOS, *QUICK_SCENARIOS)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise Refused(f'unknown scenario "{name}"{hint}; known: {", ".join(known)}')
    return [known[name] for name in names] or list(QUICK_SCENARIOS if quick else SCENARIOS)


def managers(given: str | None) -> tuple[str, ...]:
    """Returns the names of the managers to run; none: those that each scenario has."""
    only = tuple(given.split(",")) if given else ()
    for name in only:
        if name not in TITLES:
            hint = did_you_mean(name, TITLES)
            raise Refused(f'unknown manager "{name}"{hint}; known: {", ".join(TITLES)}')
    return only


def benchmark(given: argparse.Namespace, chosen: list[Scenario], only: tuple[str, ...]) -> int:
    machine = this_machine()
    whole = not given.scenarios
    found = problems(machine) if whole else ()
    if found and not given.anyway:
        raise Refused("; ".join(found) + ". To run it all the same: --anyway (make bench ANYWAY=1)")
    folder = binaries()
    results = Results(about=about(machine))
    if found:
        results.about["not reliable, since"] = "; ".join(found)
    needs_go = not only or {"go", "shipped"} & set(only)
    if needs_go and not has_reference():
        results.left_out.append("all runs of the Go manager: it cannot be built (see above)")
        only = tuple(set(only or TITLES) - {"go", "shipped"})
    budget = QUICK_BUDGET if given.quick else BUDGET if whole else FOREVER
    rounds = planned(chosen, only, given.repeats or (0 if whole else 1))
    interrupted = Benchmark(folder, results, budget, given.report).perform(*rounds)
    if not whole:
        print("\n".join(figures(results)))
    print("\n".join(summary(results)))
    if interrupted:
        return INTERRUPTED
    if given.report:
        write(results, given.report)
    return 1 if results.failed else 0


def about(machine: object) -> dict[str, str]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": str(machine),
        "Pileus": PILEUS,
        "Python": sys.version.split()[0],
        "Go manager": f"k8s.io/cloud-provider {FRAMEWORK}",
        "kube-apiserver": KUBERNETES,
    }


@dataclass
class Benchmark:
    """The runs, one after another, and what they gave."""

    folder: Path
    results: Results
    budget: float
    report: Path | None = None
    """The folder of the report: results are saved there after each round."""
    states: dict[tuple[str, str], State] = field(default_factory=dict[tuple[str, str], State])
    taken: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """The seconds that the first run of each scenario and side took."""
    began: float = 0.0
    planned: float = 1.0
    """The seconds that the runs so far were estimated to take."""

    def perform(self, first: Sequence[Round], more: Sequence[Round]) -> bool:
        """Make all runs, as far as time and user let it. Returns whether it was interrupted."""
        total = seconds_of([*first, *fitting(more, self.budget - seconds_of(first))])
        print(f"bench: {in_words(total)}, of which {in_words(seconds_of(first))} for one run each")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            prepare([*first, *more], self.folder)
            self.make(first, more)
        except KeyboardInterrupt:
            say("")
            self.results.left_out.append("everything after the interruption")
            return True
        finally:
            compare(self.states, self.results)
        return False

    def make(self, first: Sequence[Round], more: Sequence[Round]) -> None:
        self.began = time.monotonic()
        for number, runs in enumerate(first):
            rest = self.slowness * seconds_of(first[number:])
            self.round(runs, f"{number + 1}/{len(first)}, {in_words(rest)} left for one run each")
        for runs in more:
            left = self.budget - (time.monotonic() - self.began)
            if sum(run.expected(self.taken, self.slowness) for run in runs) <= left:
                self.round(runs, f"repeat, {in_words(left)} left")
            else:
                title = f"{runs[0].scenario.title}, repeat {runs[0].repeat + 1}"
                self.results.left_out.append(f"{title}: no time left")

    @property
    def slowness(self) -> float:
        """How many times as long as estimated the runs so far took."""
        elapsed = time.monotonic() - self.began
        return elapsed / self.planned if self.planned > 1 else 1.0

    def round(self, runs: Round, place: str) -> None:
        for run in runs:
            began = time.monotonic()
            head = f"[{place}] {run.scenario.title}, {TITLES[run.side]}"
            outcome = attempt(run, self.folder, self.results, head)
            self.planned += run.seconds
            self.taken.setdefault((run.scenario.name, run.side), time.monotonic() - began)
            if outcome is not None:
                record(run, outcome, self.results, self.states)
        if self.report:
            save(self.results, self.report / "results.json")


def prepare(rounds: Sequence[Round], folder: Path) -> None:
    """Create the clusters that the runs begin with, as far as they are not in the cache."""
    seeds = {run.scenario.seed for each in rounds for run in each}
    missing = sorted(
        (each for each in seeds if not each.folder(folder).exists()), key=lambda seed: seed.nodes
    )
    if missing:
        print(f"bench: preparing {len(missing)} clusters, once", file=sys.stderr, flush=True)
    for seed in missing:
        began = time.monotonic()
        seed.prepare(folder, shown(seed.name, began))
        say("")
        print(f"bench: {seed.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def in_words(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds > 90 else f"about {seconds:.0f} s"  # noqa: PLR2004


def attempt(run: Planned, folder: Path, results: Results, head: str) -> Outcome | None:
    scenario = run.scenario
    began = time.monotonic()
    work = Run(
        sides()[run.side], scenario.seed, scenario.pace, scenario.work, scenario.limit, run.repeat
    )
    progress = shown(head, began)
    try:
        outcome = work.outcome(folder, progress)
    except Exception as error:  # noqa: BLE001 -- one run that fails must not end the others
        why, log = reason(error)
        results.failed.append(Failed(scenario.name, run.side, run.repeat, why, log))
        say("")
        print(
            f"{head}: FAILED after {time.monotonic() - began:.0f} s: {why}; logs: {FAILED_LOGS}",
            *(f"    {line}" for line in log),
            sep="\n",
            file=sys.stderr,
        )
        return None
    say("")
    walls = ", ".join(
        f"{part} {values['wall']:.2f} s"
        for part, values in outcome.parts.items()
        if "wall" in values
    )
    print(f"{head}: {walls} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return outcome


def reason(error: BaseException) -> tuple[str, Sequence[str]]:
    """Returns what went wrong, in one line, and the end of the log of a manager that ended."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ProcessEnded):
        return str(error), error.log
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__, ()


def shown(head: str, began: float) -> Callable[[str], None]:
    return lambda text: say(f"{head}: {text} ({time.monotonic() - began:.0f} s)")


def say(text: str) -> None:
    """Show a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r{text[:150]}\033[K", end="", file=sys.stderr, flush=True)


def record(
    run: Planned, outcome: Outcome, results: Results, states: dict[tuple[str, str], State]
) -> None:
    for part, values in outcome.parts.items():
        rounded = {key: round(value, 3) for key, value in values.items()}
        results.samples.append(Sample(run.scenario.name, part, run.side, run.repeat, rounded))
    if outcome.state:
        states[run.scenario.name, run.side] = outcome.state


def compare(states: dict[tuple[str, str], State], results: Results) -> None:
    for scenario in dict.fromkeys(name for name, _ in states):
        go, pileus = states.get((scenario, "go")), states.get((scenario, "pileus"))
        if go is not None and pileus is not None:
            results.differences[scenario] = differences(go, pileus, ("Go", "Pileus"))


def write(results: Results, folder: Path) -> None:
    save(results, folder / "results.json")
    html = folder / "report.html"
    html.write_text(page(results))
    drawn = picture(html, folder / "report.png")
    (folder / "README.md").write_text(markdown(results, has_picture=drawn))
    files = "README.md, results.json, report.html" + (", report.png" if drawn else "")
    print(f"\nReport in {folder}: {files}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
