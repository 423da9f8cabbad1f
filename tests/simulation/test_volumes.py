"""Claims, volumes and attachments under faults, and pods that write to them on machines.

`pileus simulate --scenario volumes` and `--scenario volume-nodes` play more.
"""

from collections import Counter
from dataclasses import replace

import pytest

from pileus.csi import node
from pileus.volumes import devices, mounts
from pileus_lab.simulation.kinds import DeedKind, FaultKind
from pileus_lab.simulation.play import play
from pileus_lab.simulation.report import repeating
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import Deed, Spell, draw

SEEDS = 40
SEEDS_WITH_NODES = 20
READ = "is read by a pod"
BLOCK = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, SEEDS + 1, BLOCK))
def test_everything_holds_for_volumes(first: int):
    for seed in range(first, first + BLOCK):
        _plays(seed, "volumes")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, SEEDS_WITH_NODES + 1, BLOCK))
def test_everything_holds_for_volumes_on_nodes(first: int):
    for seed in range(first, first + BLOCK):
        _plays(seed, "volume-nodes")


def _plays(seed: int, scenario: str) -> None:
    outcome = play(draw(seed, SCENARIOS[scenario]))
    assert outcome.violation is None, f"{outcome.violation}\n{repeating(seed, scenario)}"


def test_a_cloud_that_asks_for_short_pauses_costs_the_api_server_two_reads_for_each_of_them():
    """As seed 1384 of `volumes` was: the judge knew only pauses that the API server asks for."""
    refusing = Spell(
        number=1, at=10.0, until=200.0, kind=FaultKind.CLOUD_THROTTLED, rate=1.0, seconds=0.1
    )
    claims = [
        Deed(number=number, at=20.0, kind=DeedKind.CLAIM_CREATE, choice=number, seconds=1.0)
        for number in range(2, 6)
    ]
    usual = draw(1, SCENARIOS["volumes"])
    schedule = replace(usual, replicas=1, services=0, machines=1, items=(refusing, *claims))

    outcome = play(schedule)

    assert outcome.violation is None, str(outcome.violation)
    sent = Counter[str]()
    for line in outcome.lines:
        is_then = line.startswith(" ") and 60 <= float(line.split()[0]) < 180
        sent["reads"] += is_then and " GET /api/v1/" in line
        sent["refused"] += is_then and "cloud CreateVolume" in line and "Throttled" in line
    assert sent["refused"] > 100 * len(claims)
    assert sent["reads"] <= 2 * sent["refused"] + 2 * len(claims)


def test_pods_write_data_and_read_it_back_on_another_machine():
    """What the scenario is about really happens: else the invariants would hold for nothing."""
    read: list[str] = []
    for seed in range(1, BLOCK + 1):
        read += [line for line in play(draw(seed, SCENARIOS["volume-nodes"])).lines if READ in line]

    machines = {line.split()[1] for line in read}
    assert len(read) > BLOCK
    assert len(machines) > 2


def test_the_names_of_the_product_are_its_own_again_after_a_seed():
    before = (devices.Path, devices.run, devices.find_device, mounts.MOUNTINFO, node.os)

    play(draw(1, SCENARIOS["volume-nodes"]))

    assert before == (devices.Path, devices.run, devices.find_device, mounts.MOUNTINFO, node.os)
