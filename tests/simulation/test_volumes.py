"""Claims, volumes and attachments under faults, and pods that write to them on machines.

`pileus simulate --scenario volumes` and `--scenario volume-nodes` play more.
"""

import pytest

from pileus.csi import node
from pileus.volumes import devices, mounts
from pileus_lab.simulation.play import play
from pileus_lab.simulation.report import repeating
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw

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
