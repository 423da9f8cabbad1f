"""No stretch of time has more than the burst, and what the rate adds to it."""

from hypothesis import given
from hypothesis import strategies as st

from pileus.bucket import Bucket

GAPS = st.lists(st.floats(0, 10), min_size=1, max_size=40)


@given(GAPS, st.floats(0.1, 100), st.integers(1, 50))
def test_no_stretch_of_time_has_more_than_burst_and_rate(
    gaps: list[float], rate: float, burst: int
) -> None:
    bucket, now, uses = Bucket.full(rate, burst), 0.0, list[float]()
    for gap in gaps:
        now += gap
        wait, bucket = bucket.reserve(now)
        uses.append(now + wait)

    assert uses == sorted(uses)
    for first in range(len(uses)):
        for last in range(first, len(uses)):
            allowed = burst + (uses[last] - uses[first]) * rate
            assert last - first + 1 <= allowed + 1e-6


@given(GAPS, st.floats(0.1, 100), st.integers(1, 50))
def test_a_token_that_is_given_back_is_as_if_never_taken(
    gaps: list[float], rate: float, burst: int
) -> None:
    bucket, now = Bucket.full(rate, burst), 0.0
    for gap in gaps:
        now += gap
        _, bucket = bucket.reserve(now)

    _, left = bucket.reserve(now)

    assert abs(left.returned().tokens - bucket.tokens) < 1e-6


def test_a_clock_that_goes_back_fills_nothing() -> None:
    _, empty = Bucket.full(1.0, 1, now=100.0).reserve(100.0)

    wait, left = empty.reserve(50.0)

    assert (wait, left.at) == (1.0, 100.0)
