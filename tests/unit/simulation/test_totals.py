"""The summary of many seeds: in lines that fit, with what never happened as well."""

from collections import Counter

import pytest

from pileus_lab.simulation.campaign import Report, Summary
from pileus_lab.simulation.kinds import DeedKind, FaultKind
from pileus_lab.simulation.report import WIDTH, totals_text
from pileus_lab.simulation.scenario import SCENARIOS

SUMMARY = Summary(wanted=3)
for number in (1, 2, 3):
    SUMMARY.add(
        Report(
            seed=number,
            violation="all is lost" if number == 2 else "",
            struck=Counter({(FaultKind.API_LOST, "service-controller"): 100_000}),
            done=Counter({DeedKind.SERVICE_CREATE: number}),
            virtual_seconds=3600.0,
            seconds=0.1 * number,
        )
    )


def told(summary: Summary = SUMMARY, scenario: str = "mixed") -> list[str]:
    return list(totals_text(summary, SCENARIOS[scenario], wall_seconds=7200.0))


def test_it_says_how_many_how_long_and_how_fast():
    assert told()[:2] == [
        "3 seeds, 1 failed",
        "3.0 hours of virtual time in 2.00 hours; 300 seeds per minute and core",
    ]


@pytest.mark.parametrize("width", [80, WIDTH])
def test_every_line_fits(width: int):
    lines = totals_text(SUMMARY, SCENARIOS["mixed"], wall_seconds=1.0, width=width)

    assert max(map(len, lines)) <= width


def test_what_never_struck_is_seen_as_a_hole():
    lines = told()
    head = next(number for number, line in enumerate(lines) if "faults of api calls" in line)
    names = lines[head + 1].split()
    row = next(line for line in lines if line.startswith("  service-controller")).split()[1:]

    found = dict(zip(names, row, strict=False))
    assert found["lost"] == "300000"
    assert set(found.values()) == {"300000", "."}
    assert any(line.startswith("  leader-election") and "." in line for line in lines)


def test_what_a_scenario_does_not_have_is_not_told():
    assert not any("faults of" in line for line in told(scenario="calm"))
    assert not any("machine-add" in line for line in told(scenario="services"))


def test_the_slowest_come_with_the_command_that_repeats_them():
    assert told()[-3:] == [
        f"  0.{number}0 s  pileus simulate --first-seed {number} --seeds 1 --scenario mixed"
        for number in (3, 2, 1)
    ]


def test_a_campaign_that_was_stopped_says_so():
    stopped = Summary(wanted=9, seeds=4)

    assert told(stopped)[0] == "stopped after 4 of 9 seeds, 0 failed"


def test_the_slowest_seeds_are_played_again_with_their_cloud():
    cloud = "my.provider:Simulated"
    lines = totals_text(SUMMARY, SCENARIOS["mixed"], wall_seconds=1.0, cloud=cloud)
    again = [line for line in lines if "--first-seed" in line]
    assert again
    assert all(line.endswith(f" --cloud {cloud}") for line in again)
