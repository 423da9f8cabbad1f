"""One mutant against its tests and the simulation: what catches it, if anything does."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.mutant import CHOSEN, FAILED, ROOT, Mutant

LIMIT = 900
"""Seconds for the tests of one mutant."""
HUNG = f"hung for {LIMIT} s"
PYTEST = (
    *("-m", "pytest", "-x", "-q", "--tb=no", "--no-header"),
    *("-p", "tests.mutants.plugin", "-p", "no:cacheprovider"),
)


class Unusable(Exception):
    """The tests say nothing about the mutant."""


@dataclass(frozen=True)
class Outcome:
    mutant: Mutant
    caught_by: str = ""
    """The test, or the seed and its invariant, that failed; empty: none did."""
    unusable: str = ""
    """Why the tests say nothing about the mutant."""

    def __str__(self) -> str:
        if self.unusable:
            return f"UNUSABLE  {self.mutant.name}: {self.unusable}"
        if not self.caught_by:
            return f"SURVIVED  {self.mutant.name}"
        return f"caught    {self.mutant.name}  [{self.caught_by}]"


def tried(mutant: Mutant, *, seeds: int, is_simulated: bool) -> Outcome:
    """Run the tests of the mutant, unless only the simulation counts, and then the simulation."""
    try:
        caught_by = "" if is_simulated else _by_a_test(mutant)
        return Outcome(mutant, caught_by or _by_a_seed(mutant, seeds))
    except Unusable as error:
        return Outcome(mutant, unusable=str(error))


def _by_a_test(mutant: Mutant) -> str:
    with _loop_devices() if mutant.needs_loop_devices else nullcontext():
        failed = _failed(mutant.name, *PYTEST, *mutant.test_paths)
        if failed:
            again = mutant.test_paths if failed == HUNG else (failed,)
            _check_cause(failed, _failed("", *PYTEST, *again))
    return failed.removeprefix("tests/unit/")


def _by_a_seed(mutant: Mutant, seeds: int) -> str:
    play = ("-m", "tests.mutants.seeds", mutant.cloud, mutant.scenario)
    failed = _failed(mutant.name, *play, "1", str(seeds))
    if failed:
        seed = failed.partition(":")[0]
        again = ("1", str(seeds)) if failed == HUNG else (seed, seed)
        _check_cause(failed, _failed("", *play, *again))
    return failed if failed in {"", HUNG} else f"{mutant.scenario} {failed}"


def _check_cause(failed: str, without: str) -> None:
    """Raise Unusable if the same fails without the mutant. Tests that hung must end."""
    if without == HUNG or (without and failed != HUNG):
        raise Unusable(f"{failed}: without it, too ({without})")


def _failed(mutant: str, *command: str) -> str:
    """Return the first test or seed that fails in a Python process with the mutant planted.

    Returns "" if all pass. Raises Unusable if the process fails in another way.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "failed")
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, CHOSEN: mutant, FAILED: str(file)},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return HUNG
        if not done.returncode:
            return ""
        if done.returncode == 1 and file.exists():
            return file.read_text(encoding="utf-8")
    end = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-15:])
    raise Unusable(f"{' '.join(command)} exits with {done.returncode}\n{end}")


@contextmanager
def _loop_devices() -> Generator[None]:
    """Keep other mutants out: tests with loop devices in two processes find each other's."""
    with Path(tempfile.gettempdir(), "pileus-loop-devices.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
