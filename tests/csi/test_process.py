"""The process of `pileus csi`, and what it reads of the cluster."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from grpclib.client import Channel
from grpclib.const import Status

from pileus.cloud.errors import Unavailable
from pileus.csi.run import CsiOptions, Mode, facts_from_node
from pileus.kube.client import Client as KubeClient
from pileus.kube.model.core_v1 import NODES
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.csi.stage import Client, created

PILEUS = Path(sys.executable).with_name("pileus")
ENDING = 60.0


@asynccontextmanager
async def running(*arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        str(PILEUS), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def reached(path: Path) -> None:
    async with asyncio.timeout(ENDING):
        while not path.exists():
            await asyncio.sleep(0.05)


async def answered(path: Path) -> None:
    """Waits until a process accepts connections. A killed one leaves a socket that refuses them."""
    async with asyncio.timeout(ENDING):
        while not accepts(path):
            await asyncio.sleep(0.05)


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(path)) == 0


@asynccontextmanager
async def channel_to(path: Path) -> AsyncGenerator[Channel]:
    await answered(path)
    channel = Channel(path=str(path))
    try:
        yield channel
    finally:
        channel.close()


@asynccontextmanager
async def client_of(path: Path) -> AsyncGenerator[Client]:
    async with channel_to(path) as channel:
        yield Client(channel)


@pytest.mark.real_time
async def test_the_process_serves_ends_and_starts_again(tmp_path: Path) -> None:
    cloud, path = tmp_path / "cloud.sock", tmp_path / "csi.sock"
    config = tmp_path / "cloud.yaml"
    config.write_text(f"endpoint: {cloud}\nnetwork: none\nvolumeFolder: {tmp_path}/volumes\n")
    flags = ("--cloud-provider=local", f"--cloud-config={config}", "--cluster-id=c1")
    serve = ("csi", *flags, "--mode=controller", f"--endpoint=unix://{path}")
    async with running("local", "serve", f"--config={config}"):
        await reached(cloud)
        async with running(*serve) as process, client_of(path) as client:
            volume = await created(client)
            assert (await client.fails("NodeGetInfo"))[0] is Status.UNIMPLEMENTED
            assert (await client.fails("ControllerModifyVolume"))[0] is Status.UNIMPLEMENTED
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), ENDING) == 0
        assert not path.exists()
        async with running(*serve), client_of(path) as client:
            (entry,) = (await client("ListVolumes")).entries
            assert entry.volume == volume


@pytest.mark.real_time
async def test_a_cloud_that_does_not_answer_ends_the_process(tmp_path: Path) -> None:
    config = tmp_path / "cloud.yaml"
    config.write_text(f"endpoint: {tmp_path}/none.sock\n")
    flags = ("--cloud-provider=local", f"--cloud-config={config}", "--cluster-id=c1")
    async with running("csi", *flags, f"--endpoint=unix://{tmp_path}/csi.sock") as process:
        assert await asyncio.wait_for(process.wait(), ENDING) == 255


async def test_a_node_is_what_its_node_object_says() -> None:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    metrics = Metrics(MetricRegistry())
    client = KubeClient(InProcessTransport(api), user_agent="test", metrics=metrics)
    options = CsiOptions(endpoint="", mode=Mode.NODE, node_name="n1", max_volumes=7)
    with pytest.raises(Unavailable, match="cannot read node n1"):
        await facts_from_node(client, options)
    await client.create(NODES, {"metadata": {"name": "n1"}})
    with pytest.raises(Unavailable, match="node n1 has no provider ID yet"):
        await facts_from_node(client, options)

    place = {"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"}
    labels = {**place, "kubernetes.io/hostname": "n2"}
    body = {
        "metadata": {"name": "n2", "labels": labels},
        "spec": {"providerID": "openstack:///0a6b3c6e-7a53-4c6b-9d2e-1f2b3c4d5e6f"},
    }
    await client.create(NODES, body)
    options = CsiOptions(endpoint="", mode=Mode.NODE, node_name="n2", max_volumes=7)
    facts = await facts_from_node(client, options)

    assert facts.id == "0a6b3c6e-7a53-4c6b-9d2e-1f2b3c4d5e6f"
    assert facts.topology == place
    assert facts.max_volumes == 7


async def test_a_node_that_has_no_zone_yet_is_not_registered() -> None:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    metrics = Metrics(MetricRegistry())
    client = KubeClient(InProcessTransport(api), user_agent="test", metrics=metrics)
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    spec = {"providerID": "local://i-1", "taints": [{**taint, "value": "true"}]}
    await client.create(NODES, {"metadata": {"name": "n1"}, "spec": spec})
    options = CsiOptions(endpoint="", mode=Mode.NODE, node_name="n1")
    with pytest.raises(Unavailable, match="node n1 is not initialized yet: its zone is not known"):
        await facts_from_node(client, options)
