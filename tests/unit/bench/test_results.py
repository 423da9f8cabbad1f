"""Ratios with their spread, growth, and the verdicts on goals."""

import pytest
from tools.bench.goals import (
    GOALS,
    Goal,
    State,
    at_least,
    at_most,
    at_most_of,
    grows,
    of_the_limit,
    same_end_states,
    times_faster,
)
from tools.bench.results import Results, Sample, exponent


def measured(*samples: tuple[str, str, int, dict[str, float]]) -> Results:
    return Results(samples=[Sample("it", *sample) for sample in samples])


def test_a_ratio_is_the_median_over_repeats_with_its_spread():
    results = measured(
        ("nodes", "go", 0, {"wall": 10}),
        ("nodes", "go", 1, {"wall": 10}),
        ("nodes", "go", 2, {"wall": 20}),
        ("nodes", "pileus", 2, {"wall": 5}),
        ("nodes", "pileus", 0, {"wall": 8}),
        ("nodes", "pileus", 1, {"wall": 11}),
    )
    ratio = results.ratio("nodes", "wall", "go")
    assert ratio is not None
    assert (ratio.middle, ratio.low, ratio.high, ratio.runs) == (0.8, 0.25, 1.1, 3)
    assert str(ratio) == "0.80x (0.25 to 1.10, 3 runs)"


def test_a_repeat_that_failed_on_one_side_is_no_pair():
    results = measured(
        ("nodes", "go", 0, {"wall": 10}),
        ("nodes", "go", 1, {"wall": 100}),
        ("nodes", "pileus", 1, {"wall": 50}),
    )
    ratio = results.ratio("nodes", "wall", "go")
    assert ratio is not None
    assert str(ratio) == "0.50x (1 run)"


def test_there_is_no_ratio_of_what_was_not_measured():
    results = measured(("nodes", "pileus", 0, {"wall": 1}), ("nodes", "go", 0, {"wall": 0}))
    assert results.ratio("nodes", "wall", "go") is None
    assert results.ratio("nodes", "cpu", "go") is None
    assert results.ratio("routes", "wall", "go") is None


@pytest.mark.parametrize(("power", "expected"), [(1.0, 1.0), (2.0, 2.0), (0.5, 0.5)])
def test_the_exponent_of_growth(power: float, expected: float):
    points = [(size, 3 * size**power) for size in (500.0, 1000.0, 5000.0, 10000.0)]
    assert exponent(points) == pytest.approx(expected)


def test_one_point_has_no_growth():
    assert exponent([(500.0, 1.0)]) is None
    assert exponent([(500.0, 1.0), (500.0, 2.0)]) is None


RESULTS = measured(
    ("nodes", "go", 0, {"wall": 10, "calls": 900, "events": 175}),
    ("nodes", "pileus", 0, {"wall": 8, "calls": 3, "events": 1001, "refused": 2}),
    ("nodes", "bare", 0, {"wall": 6}),
)


@pytest.mark.parametrize(
    ("judge", "state", "text"),
    [
        (at_most("nodes", "wall", 8, "s"), State.MET, "8.00 s; Go 10.00 s"),
        (at_most("nodes", "wall", 7.9, "s"), State.MISSED, "8.00 s; Go 10.00 s"),
        (at_most("nodes", "refused", 0, "calls"), State.MISSED, "2.00 calls"),
        (at_most_of("nodes", "wall", "go", 0.8), State.MET, "0.80x (1 run) of go"),
        (at_most_of("nodes", "wall", "go", 0.79), State.MISSED, "0.80x (1 run) of go"),
        (times_faster("nodes", "go", 1.25), State.MET, "1.25x (1 run) faster than go"),
        (times_faster("nodes", "go", 1.3), State.MISSED, "1.25x (1 run) faster than go"),
        (of_the_limit("nodes", 0.75), State.MET, "75% of the bare limit"),
        (of_the_limit("nodes", 0.9), State.MISSED, "75% of the bare limit"),
        (at_least("nodes", "events", 1000, "events"), State.MET, "1,001 events"),
        (at_least("nodes", "events", 1002, "events"), State.MISSED, "1,001 events"),
        (times_faster("nodes", "shipped", 15), State.UNKNOWN, ""),
        (at_most("routes", "wall", 5, "s"), State.UNKNOWN, ""),
    ],
)
def test_a_verdict(judge, state: State, text: str):
    verdict = Goal("it", judge).verdict(RESULTS)
    assert (verdict.state, verdict.measured) == (state, text)


def test_growth_is_judged_only_with_all_sizes():
    sizes = (500, 1000, 2000, 5000, 10000)
    samples = [(f"{size:,} nodes", "pileus", 0, {"wall": size / 100}) for size in sizes]
    judge = Goal("grows", grows("wall", 1.1))
    assert judge.verdict(measured(*samples[:4])).state is State.UNKNOWN
    assert judge.verdict(measured(*samples)).state is State.MET
    steep = [(part, side, n, {"wall": v["wall"] ** 1.3}) for part, side, n, v in samples]
    assert judge.verdict(measured(*steep)).state is State.MISSED


def test_what_only_go_has_is_worse_and_what_pileus_adds_is_not():
    judge = Goal("same", same_end_states)
    assert judge.verdict(Results()).state is State.UNKNOWN
    assert judge.verdict(Results(differences={"nodes": []})).state is State.MET
    added = ["3 x node.metadata.annotations.x: only Pileus has it, as 1"]
    assert judge.verdict(Results(differences={"nodes": added})).state is State.MET
    lacking = ["3 x node.spec.providerID: only Go has it, as bench://1"]
    assert judge.verdict(Results(differences={"nodes": added + lacking})).state is State.MISSED


def test_each_goal_is_about_a_part_that_a_scenario_measures():
    """A goal that no scenario measures would never be missed."""
    parts = {
        "1,000 nodes", "5,000 nodes", "1,000 Services", "one node joins", "fifty nodes join",
        "1,000 routes", "start", "SIGKILL", "SIGTERM", "200 nodes", "100 Services", "400 routes",
        "limited cloud", "restart", "outage", "500 nodes", "2,000 nodes", "10,000 nodes",
    }  # fmt: skip
    every = {"wall": 1.0, "cpu": 1, "peak": 1, "resident": 1, "initialized": 1, "calls": 1}
    every |= {"api_cpu": 1, "events": 1, "refused": 0, "writes": 0, "known": 1}
    sides = ("go", "pileus", "shipped", "bare")
    results = measured(*((part, side, 0, every) for part in parts for side in sides))
    results.differences["nodes"] = []
    unknown = [goal.text for goal in GOALS if goal.verdict(results).state is State.UNKNOWN]
    assert unknown == []
