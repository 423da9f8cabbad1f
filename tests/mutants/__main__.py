"""`make mutants`: plant each mutant in turn and report which tests catch it.

    python -m tests.mutants [--seeds N] [--jobs N] [--only WORD] [--simulation]

Exits with 1 if a dangerous mutant survives, if fewer than nine in ten are caught, or if the tests
of one say nothing, e.g. since they fail without it, too. With `--simulation`, no test counts but
the seeds: they must see half of the mutants of `FOR_SIMULATION`, of what the simulation runs at
all. `build/mutants.txt` has what is known so far.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import TextIO

from tests.mutants.mutant import ROOT, Danger
from tests.mutants.suite import FOR_SIMULATION, MUTANTS
from tests.mutants.trial import Outcome, tried

ENOUGH = 0.9
"""The part of all mutants that must be caught."""
ENOUGH_SEEN = 0.5
"""The part of those that the simulation runs that it must see."""
RESULTS = ROOT / "build" / "mutants.txt"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants",
        description="Plant each mutant in turn and report which tests catch it.",
    )
    parser.add_argument("--seeds", type=int, default=40, help="simulation seeds for each mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time")
    parser.add_argument("--only", default="", help="run mutants whose name contains this text")
    parser.add_argument(
        "--simulation", action="store_true", help="judge the simulation, without other tests"
    )
    given = parser.parse_args(arguments)
    known = FOR_SIMULATION if given.simulation else MUTANTS
    chosen = [each for each in known if given.only in each.name]
    left_out = [each for each in chosen if given.simulation and each.unsimulated]
    chosen = [each for each in chosen if each not in left_out]
    if not chosen:
        parser.error(f"no mutant has {given.only!r} in its name")
    if outdated := [each for each in chosen if not each.applies()]:
        names = ", ".join(repr(each.name) for each in outdated)
        parser.error(f"the code has changed: adapt {names}, and run tests/mutants/test_mutants.py")
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", encoding="utf-8") as file, ThreadPoolExecutor(given.jobs) as pool:
        say = partial(_say, file)
        tries = [
            pool.submit(tried, each, seeds=given.seeds, is_simulated=given.simulation)
            for each in chosen
        ]
        for each in left_out:
            say(f"not simulated: {each.name} ({each.unsimulated})")
        outcomes = list[Outcome]()
        for done in as_completed(tries):
            outcomes.append(done.result())
            say(f"{len(outcomes)} of {len(chosen)}  {outcomes[-1]}")
        return verdict(outcomes, say, is_simulated=given.simulation)


def verdict(outcomes: Sequence[Outcome], say: Callable[[str], None], *, is_simulated: bool) -> int:
    """Say what was found; 0 if it is enough."""
    unusable = [each for each in outcomes if each.unusable]
    survived = [each.mutant for each in outcomes if not each.unusable and not each.caught_by]
    dangerous = [each for each in survived if each.danger is not Danger.NONE]
    for outcome in unusable:
        say(f"unusable: {outcome.mutant.name}")
    for each in survived:
        say(f"survived: {each.name} (danger: {each.danger})")
    caught = len(outcomes) - len(survived) - len(unusable)
    say(
        f"{caught} of {len(outcomes)} mutants caught, {len(dangerous)} dangerous ones survived, "
        f"{len(unusable)} could not be tried"
    )
    if is_simulated:
        return int(bool(unusable) or caught < ENOUGH_SEEN * len(outcomes))
    return int(bool(dangerous or unusable) or caught < ENOUGH * len(outcomes))


def _say(file: TextIO, line: str) -> None:
    for out in (sys.stdout, file):
        out.write(f"{line}\n")
        out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
