"""What counts as caught: only what fails with the mutant and passes without it."""

from dataclasses import replace

import pytest

from tests.mutants import trial
from tests.mutants.__main__ import verdict
from tests.mutants.mutant import Danger
from tests.mutants.suite import FOR_SIMULATION, MUTANTS
from tests.mutants.trial import HUNG, Outcome, tried

pytestmark = pytest.mark.real_time
(MUTANT,) = (each for each in MUTANTS if each.name == "a cloud is silent for as long as it asks")
SAMPLES = "tests/mutants/samples"


def outcome(tests: str) -> Outcome:
    return tried(replace(MUTANT, tests=tests), seeds=0, is_simulated=False)


def test_a_test_that_fails_with_the_mutant_only_catches_it() -> None:
    assert outcome(MUTANT.tests).caught_by.startswith("cloud/test_errors.py::test_")


def test_a_mutant_that_no_test_notices_survives() -> None:
    found = outcome("tests/mutants/test_mutants.py")

    assert not found.caught_by
    assert not found.unusable


def test_a_test_that_fails_without_the_mutant_too_says_nothing() -> None:
    found = outcome(f"{SAMPLES}/always_failing.py")

    assert not found.caught_by
    assert f"{SAMPLES}/always_failing.py::test_something: without it, too" in found.unusable


def test_a_failing_setup_catches_a_mutant() -> None:
    assert outcome(f"{SAMPLES}/failing_setup.py").caught_by.endswith("::test_something")


def test_a_mutant_with_which_the_tests_cannot_be_imported_is_not_caught() -> None:
    found = outcome(f"{SAMPLES}/failing_import.py")

    assert not found.caught_by
    assert "failing_import.py" in found.unusable


def test_tests_that_hang_without_the_mutant_too_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "LIMIT", 0.01)

    assert HUNG in outcome(MUTANT.tests).unusable


def test_mutants_whose_tests_use_loop_devices_are_known() -> None:
    using = {each.tests for each in MUTANTS if each.needs_loop_devices}

    assert {"volumes/test_devices.py", "flexvolume/test_flexvolume.py"} < using
    assert "tests/csi/test_node.py" in using
    assert MUTANT.tests not in using


def ended(caught: int, survived: int, danger: Danger, *, is_simulated: bool) -> int:
    one = replace(MUTANT, danger=danger)
    outcomes = [*[Outcome(one, "a test")] * caught, *[Outcome(one)] * survived]
    return verdict(outcomes, lambda _: None, is_simulated=is_simulated)


def test_nine_in_ten_are_caught_and_none_of_the_dangerous_ones_survives() -> None:
    assert ended(9, 1, Danger.NONE, is_simulated=False) == 0
    assert ended(8, 2, Danger.NONE, is_simulated=False) == 1
    assert ended(9, 1, Danger.LEAK, is_simulated=False) == 1


def test_the_simulation_alone_sees_half() -> None:
    assert ended(1, 1, Danger.LEAK, is_simulated=True) == 0
    assert ended(1, 2, Danger.NONE, is_simulated=True) == 1


def test_one_that_cannot_be_tried_is_a_failure() -> None:
    outcomes = [*[Outcome(MUTANT, "a test")] * 99, Outcome(MUTANT, unusable="no import")]

    assert verdict(outcomes, lambda _: None, is_simulated=False) == 1
    assert verdict(outcomes, lambda _: None, is_simulated=True) == 1


def test_most_that_the_simulation_is_judged_by_are_simulated() -> None:
    left_out = [each for each in FOR_SIMULATION if each.unsimulated]

    assert 0 < len(left_out) < len(FOR_SIMULATION) / 4
