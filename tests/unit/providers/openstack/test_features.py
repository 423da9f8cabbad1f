"""What services can do, by their versions and extensions; read once, and again after a failure."""

import asyncio
from typing import Any

import pytest

from pileus.cloud.errors import Unavailable
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.features import Features, OctaviaFeatures, octavia_version


class Answers:
    """Versions of Octavia and extensions of Neutron, or a failure."""

    def __init__(self) -> None:
        self.is_down = False
        self.calls: list[str] = []

    async def call(self, call: Call) -> Any:
        self.calls.append(call.path)
        await asyncio.sleep(0)
        if self.is_down:
            raise Unavailable("down")
        if call.path == "/":
            return {"versions": [{"id": "v2.9"}, {"id": "v2.26"}, {"id": "v1"}]}
        return {"extensions": [{"alias": "extraroute"}, {"alias": "standard-attr-tag"}]}


async def test_features_are_read_once_for_all_callers():
    api = Answers()
    features = Features(Client(api))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(features.octavia())
            tasks.create_task(features.neutron())
    assert sorted(api.calls) == ["/", "/v2.0/extensions"]
    assert (await features.octavia()).version == (2, 26)
    neutron = await features.neutron()
    assert (neutron.has_routes, neutron.has_atomic_routes, neutron.has_tags) == (True, False, True)


async def test_a_service_that_was_down_is_asked_again():
    api = Answers()
    api.is_down = True
    features = Features(Client(api))
    for read in (features.octavia, features.neutron):
        with pytest.raises(Unavailable):
            await read()
    api.is_down = False
    assert (await features.octavia()).has_tags
    assert (await features.neutron()).has_routes


@pytest.mark.parametrize(
    ("feature", "version", "is_of_ovn"),
    [
        ("has_timeouts", (2, 1), False),
        ("has_tags", (2, 5), True),
        ("has_flavors", (2, 6), False),
        ("has_allowed_cidrs", (2, 12), False),
        ("has_availability_zones", (2, 14), False),
        ("has_http_monitors_on_udp", (2, 16), False),
        ("has_additional_vips", (2, 26), True),
    ],
)
def test_features_come_with_versions_and_ovn_lacks_most(feature, version, is_of_ovn):
    major, minor = version
    assert getattr(OctaviaFeatures(version), feature)
    assert getattr(OctaviaFeatures((3, 0)), feature)
    assert not getattr(OctaviaFeatures((major, minor - 1)), feature)
    assert getattr(OctaviaFeatures(version, "ovn"), feature) is is_of_ovn


@pytest.mark.parametrize("answer", [None, {}, {"versions": []}, {"versions": [{"id": "x"}]}])
def test_an_unexpected_list_of_versions_is_an_error(answer):
    with pytest.raises(Unavailable):
        octavia_version(answer)
