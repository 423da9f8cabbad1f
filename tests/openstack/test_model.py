"""The model of OpenStack answers as the real one does: the same statuses, bodies and faults.

Record the answers again, after a new release of OpenStack: PILEUS_RECORD=1 make test-openstack
"""

import json
import os

import pytest

from tests.openstack.balancer_talks import random_talk
from tests.openstack.places import model
from tests.openstack.recordings import RANDOM_SEEDS, path_of
from tests.openstack.talk import BedTarget, Talk
from tests.openstack.talks import WITH_SERVERS, WRITTEN

RECORD = "PILEUS_RECORD"


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_conversation_is_the_same(name: str, request: pytest.FixtureRequest) -> None:
    fixture = "furnished" if name in WITH_SERVERS else "empty"
    project = request.getfixturevalue(fixture)
    real = Talk(BedTarget(project.cloud))
    WRITTEN[name](real)
    if os.environ.get(RECORD):
        path_of(name).write_text(f"{json.dumps(real.lines, indent=1, sort_keys=True)}\n")
    modelled = Talk(model())
    WRITTEN[name](modelled)
    assert modelled.lines == real.lines


@pytest.mark.extended  # unit tests use the recordings
@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_a_random_conversation_is_the_same(seed: int, empty) -> None:
    real, modelled = Talk(BedTarget(empty.cloud)), Talk(model())
    random_talk(seed)(real)
    if os.environ.get(RECORD):
        path_of(f"random_{seed}").write_text(
            f"{json.dumps(real.lines, indent=1, sort_keys=True)}\n"
        )
    random_talk(seed)(modelled)
    assert modelled.lines == real.lines
