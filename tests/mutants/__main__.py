"""`make mutants`: plant each mutant in turn and report which tests catch it.

    python -m tests.mutants [--seeds N] [--jobs N] [--only WORD] [--simulation]

Exits with 1 if a dangerous mutant survives, or if fewer than nine in ten are caught. A test that
fails without the mutant, too, catches nothing.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.mutants.mutant import CHOSEN, Danger, Mutant
from tests.mutants.suite import MUTANTS

ROOT = Path(__file__).parents[2]
ENOUGH = 0.9
"""The part of all mutants that must be caught."""
LIMIT = 900
"""Seconds for the tests of one mutant; one that hangs them is caught."""


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught_by: str
    """The test or invariant that failed; empty: it survived."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make mutants",
        description="Plant each mutant in turn and report which tests catch it.",
    )
    parser.add_argument("--seeds", type=int, default=40, help="simulation seeds for each mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time")
    parser.add_argument("--only", default="", help="run mutants whose name contains this text")
    parser.add_argument(
        "--simulation", action="store_true", help="count only what the simulation catches"
    )
    given = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if given.only in each.name]
    if not chosen:
        parser.error(f"no mutant has {given.only!r} in its name")
    if outdated := [each for each in chosen if not each.applies()]:
        names = ", ".join(repr(each.name) for each in outdated)
        parser.error(f"the code has changed: adapt {names}, and run tests/mutants/test_mutants.py")
    with ThreadPoolExecutor(given.jobs) as pool:
        tries = partial(_tried, seeds=given.seeds, is_simulated=given.simulation)
        outcomes = list(pool.map(tries, chosen))
    return _verdict(outcomes)


def _tried(mutant: Mutant, *, seeds: int, is_simulated: bool) -> Outcome:
    began = time.monotonic()
    caught_by = "" if is_simulated else _unit_tests(mutant)
    caught_by = caught_by or _simulation(mutant, seeds)
    sign = "caught  " if caught_by else "SURVIVED"
    _say(f"{sign} {time.monotonic() - began:4.0f} s  {mutant.name}  [{caught_by}]")
    return Outcome(mutant, caught_by)


def _unit_tests(mutant: Mutant) -> str:
    given = mutant.tests.split()
    paths = [each if each.startswith("tests/") else f"tests/unit/{each}" for each in given]
    options = ("-x", "-q", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", "--no-header")
    command = ("-m", "pytest", *options, "--tb=no")
    output = _failure(mutant.name, *command, *paths)
    failed = [line for line in output.splitlines() if line.startswith("FAILED ")]
    if not failed:
        return output
    test = failed[0].removeprefix("FAILED ").partition(" - ")[0]
    if _failure("", *command, test):
        _say(f"without  {mutant.name!r}, too, fails {test}")
        return ""
    return test.removeprefix("tests/unit/")


def _simulation(mutant: Mutant, seeds: int) -> str:
    return _failure(mutant.name, "-m", "tests.mutants.seeds", mutant.scenario, str(seeds)).strip()


def _failure(mutant: str, *command: str) -> str:
    """Return what a Python process with the mutant planted printed; empty if its tests passed.

    Raises RuntimeError if it failed in another way: then nothing is known about the mutant.
    """
    environment = {**os.environ, CHOSEN: mutant}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"hung for {LIMIT} s"
    if done.returncode not in {0, 1} or (done.returncode and not done.stdout.strip()):
        raise RuntimeError(f"mutant {mutant!r}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout if done.returncode else ""


def _verdict(outcomes: Sequence[Outcome]) -> int:
    survived = [each.mutant for each in outcomes if not each.caught_by]
    dangerous = [each for each in survived if each.danger is not Danger.NONE]
    for each in survived:
        _say(f"survived: {each.name} (danger: {each.danger})")
    caught = len(outcomes) - len(survived)
    _say(f"{caught} of {len(outcomes)} mutants caught, {len(dangerous)} dangerous ones survived")
    return int(bool(dangerous) or caught < ENOUGH * len(outcomes))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
