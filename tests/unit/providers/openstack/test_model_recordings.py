"""The model of OpenStack answers as the real one did when its answers were recorded."""

import json
from collections.abc import Callable

import pytest

from tests.openstack.balancer_talks import random_talk
from tests.openstack.places import model
from tests.openstack.recordings import RANDOM_SEEDS, path_of
from tests.openstack.talk import Talk
from tests.openstack.talks import WRITTEN

TALKS = {**WRITTEN, **{f"random_{seed}": random_talk(seed) for seed in RANDOM_SEEDS}}


@pytest.mark.parametrize(("name", "conversation"), TALKS.items(), ids=TALKS)
def test_the_model_answers_as_recorded(name: str, conversation: Callable[[Talk], None]) -> None:
    talk = Talk(model())
    conversation(talk)
    recorded = json.loads(path_of(name).read_text())
    assert [line["method"] for line in talk.lines] == [line["method"] for line in recorded]
    for line, real in zip(talk.lines, recorded, strict=True):
        assert line == real


def test_a_recording_that_differs_is_noticed() -> None:
    talk = Talk(model())
    WRITTEN["extra_routes"](talk)
    recorded = json.loads(path_of("extra_routes").read_text())
    recorded[-1]["status"] = 500
    assert talk.lines != recorded
