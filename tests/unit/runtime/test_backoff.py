"""How long a failed key waits."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.errors import Throttled, Unavailable
from pileus.runtime.backoff import (
    JITTER,
    Exponential,
    RetryPolicy,
    default_policy,
    service_policy,
)

DOWN = Unavailable("down")


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(1, 0.005), (2, 0.01), (3, 0.02), (11, 5.12), (18, 655.36), (19, 1000.0), (10**6, 1000.0)],
)
def test_the_default_delay_doubles_up_to_a_ceiling(failures: int, expected: float) -> None:
    delay = default_policy(random.Random(1)).delay(failures, DOWN, 0.0)

    assert expected <= delay <= expected * (1 + JITTER)


@pytest.mark.parametrize(("failures", "expected"), [(1, 5.0), (2, 10.0), (6, 160.0), (7, 300.0)])
def test_the_delay_of_services(failures: int, expected: float) -> None:
    delay = service_policy(random.Random(1)).delay(failures, DOWN, 0.0)

    assert expected <= delay <= expected * (1 + JITTER)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(17, 17.0, id="the-server-knows-best"),
        pytest.param(0, 1.0, id="but-cannot-make-us-spin"),
        pytest.param(-5, 1.0, id="nor-with-nonsense"),
    ],
)
def test_a_hint_wins_over_the_back_off(asked: float, expected: float) -> None:
    error = Throttled("slow down", retry_after=asked)

    delay = service_policy(random.Random(1)).delay(9, error, 0.0)

    assert expected <= delay <= expected * (1 + JITTER)


def test_without_jitter_keys_that_failed_together_are_retried_together() -> None:
    policy = RetryPolicy(Exponential(1.0, 300.0), random.Random(1), jitter=0.0)

    assert {policy.delay(3, DOWN, 0.0) for _ in range(10)} == {4.0}


def test_keys_that_failed_together_are_retried_up_to_a_tenth_apart() -> None:
    policy = service_policy(random.Random(1))

    delays = sorted(policy.delay(1, DOWN, 0.0) for _ in range(100))

    assert 5.0 <= delays[0] < 5.05
    assert 5.45 < delays[-1] <= 5.5


@pytest.mark.parametrize("asked", [float("nan"), float("inf")])
def test_a_hint_that_is_no_time_is_ignored(asked: float) -> None:
    error = Throttled("slow down", retry_after=asked)

    assert 5.0 <= service_policy(random.Random(1)).delay(1, error, 0.0) <= 5.5


def test_of_several_hints_in_a_group_the_longest_counts() -> None:
    hints = [Throttled("slow", retry_after=20), ExceptionGroup("", [Throttled("", retry_after=40)])]
    error = ExceptionGroup("both", [DOWN, *hints])

    assert 40.0 <= service_policy(random.Random(1)).delay(1, error, 0.0) <= 44.0


def test_a_hint_for_one_of_two_failures_does_not_hasten_the_other() -> None:
    error = ExceptionGroup("both", [DOWN, Throttled("slow down", retry_after=1)])

    delay = service_policy(random.Random(1)).delay(5, error, 0.0)

    assert 80.0 <= delay <= 80.0 * (1 + JITTER)


def test_where_all_of_a_group_ask_to_wait_the_back_off_does_not_count() -> None:
    asked = [Throttled("slow down", retry_after=2), Throttled("slow down", retry_after=3)]

    delay = service_policy(random.Random(1)).delay(5, ExceptionGroup("both", asked), 0.0)

    assert 3.0 <= delay <= 3.0 * (1 + JITTER)


def test_after_a_burst_all_keys_together_are_tried_ten_times_a_second() -> None:
    policy = default_policy(random.Random(1))

    delays = [policy.delay(1, DOWN, 0.0) for _ in range(200)]

    assert max(delays[:100]) < 0.01
    assert 9.9 <= delays[-1] <= 11.0


@given(st.integers(1, 10**9), st.floats(0.001, 10), st.floats(10, 10_000))
def test_a_delay_is_never_shorter_than_the_first_nor_much_longer_than_the_last(
    failures: int, first: float, last: float
) -> None:
    delay = RetryPolicy(Exponential(first, last), random.Random(0)).delay(failures, DOWN, 0.0)

    assert first <= delay <= last * (1 + JITTER)
