"""csi-sanity, the conformance test of the CSI project, on the driver of each provider."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pileus.csi.node import Node, NodeFacts
from pileus.testing.conformance.harness import VolumesHarness
from tests.contract.openstack_machines import OpenStackVolumesHarness
from tests.csi.stage import GIB, LocalStage, driving, services, summary
from tests.csi.test_node import release
from tests.loop_devices import ONE_WORKER, needs_loop_devices, release_leftovers

SANITY = os.environ.get("PILEUS_CSI_SANITY")
LIMIT = 300
pytestmark = [
    ONE_WORKER,
    pytest.mark.real_time,
    pytest.mark.timeout(LIMIT),
    pytest.mark.skipif(not SANITY, reason="no csi-sanity: run `make test-csi` once"),
]


async def sanity(folder: Path, *more: str) -> dict[str, int]:
    """Run csi-sanity on the driver at the socket. Returns the numbers of its summary."""
    process = await asyncio.create_subprocess_exec(
        str(SANITY),
        f"--csi.endpoint=unix://{folder}/csi.sock",
        f"--csi.mountdir={folder}/mount",
        f"--csi.stagingdir={folder}/staging",
        f"--csi.testvolumesize={GIB}",
        f"--csi.testvolumeexpandsize={2 * GIB}",
        "--ginkgo.no-color",
        *more,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    text = out.decode()
    found = summary(text)
    assert process.returncode == 0, text[-6000:]
    return found


@needs_loop_devices
@pytest.mark.parametrize("access", ["mount", "block"])
async def test_csi_sanity_passes_on_local(tmp_path: Path, access: str) -> None:
    release_leftovers()
    async with LocalStage(tmp_path).up() as stage, stage.driver():
        found = await sanity(
            tmp_path,
            f"--csi.testvolumeaccesstype={access}",
            "--csi.testnodevolumeattachlimit=true",
        )
        assert found["failed"] == 0
        assert found["passed"] >= 80
        assert not stage.local.state.volumes
    release(tmp_path)


@asynccontextmanager
async def openstack_driver(harness: VolumesHarness, folder: Path) -> AsyncGenerator[None]:
    """The controller service on this OpenStack; the node service only says who it is."""
    server = harness.add_machine("n1")

    async def facts() -> NodeFacts:
        return NodeFacts(id=server, topology={})

    async with (
        harness.connect() as volumes,
        driving(folder, services(volumes, Node(facts), "openstack")),
    ):
        yield


async def test_csi_sanity_passes_on_openstack(tmp_path: Path) -> None:
    harness = OpenStackVolumesHarness(seconds=1.0, page=1000)
    async with openstack_driver(harness, tmp_path):
        found = await sanity(tmp_path, "--ginkgo.skip=Node Service")

        assert found["failed"] == 0
        assert found["passed"] >= 55
        assert harness.built() == {}
