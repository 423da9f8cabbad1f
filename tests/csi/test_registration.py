"""The driver registers itself with a kubelet: the folder, the socket and the answers."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpclib.client import Channel, UnaryUnaryMethod

from pileus.csi.identity import Identity
from pileus.csi.registration import NotRegistered, Registration, registration_socket
from pileus.csi.server import InvalidEndpoint
from pileus.csi.spec import csi_pb2 as csi
from pileus.csi.spec import registration_pb2 as api
from tests.csi.test_process import ENDING, channel_to, client_of, running

NAME = "local.csi.pileus.dev"


class Kubelet:
    """Asks who serves at a socket of its folder, and says whether that is registered."""

    def __init__(self, channel: Channel) -> None:
        service = "/pluginregistration.Registration"
        self.info = UnaryUnaryMethod(channel, f"{service}/GetInfo", api.InfoRequest, api.PluginInfo)
        self.notify = UnaryUnaryMethod(
            channel,
            f"{service}/NotifyRegistrationStatus",
            api.RegistrationStatus,
            api.RegistrationStatusResponse,
        )


@asynccontextmanager
async def kubelet_at(path: Path) -> AsyncGenerator[Kubelet]:
    async with channel_to(path) as channel:
        yield Kubelet(channel)


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of a kubelet. Its path is short, as that of a socket has to be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def registration() -> Registration:
    return Registration(NAME, Path("/k/csi.sock"), Path("/k/reg.sock"))


def accepted() -> api.RegistrationStatus:
    return api.RegistrationStatus(plugin_registered=True)


def refused(why: str) -> api.RegistrationStatus:
    return api.RegistrationStatus(plugin_registered=False, error=why)


async def test_a_kubelet_that_never_asks_ends_the_wait() -> None:
    with pytest.raises(NotRegistered, match="it has not asked for the driver at /k/reg.sock"):
        await registration().watch(60)
    assert asyncio.get_running_loop().time() >= 60


async def test_a_refusal_is_kept_as_the_reason_and_a_registration_ends_the_countdown() -> None:
    offered = registration()
    watching = asyncio.create_task(offered.watch(60))
    await asyncio.sleep(50)
    await offered.notify_registration_status(refused("node n1 has no provider ID yet"))
    assert offered.problem == "node n1 has no provider ID yet"
    await asyncio.sleep(5)
    await offered.notify_registration_status(accepted())
    await asyncio.sleep(10_000)
    assert (watching.done(), offered.problem) == (False, "")

    await offered.notify_registration_status(refused("the driver does not answer"))
    await asyncio.sleep(59)
    assert not watching.done()
    await asyncio.sleep(2)
    with pytest.raises(NotRegistered, match="for 60 s: the driver does not answer"):
        await watching


async def test_the_driver_is_ready_when_it_is_registered() -> None:
    offered = registration()
    identity = Identity(NAME, has_controller=False, problem=lambda: offered.problem)
    assert not (await identity.probe(csi.ProbeRequest())).ready.value
    await offered.notify_registration_status(accepted())
    assert (await identity.probe(csi.ProbeRequest())).ready.value


def test_the_folder_has_to_be_that_of_a_kubelet(folder: Path) -> None:
    with pytest.raises(InvalidEndpoint, match="plugins_registry does not exist, or is not a folde"):
        registration_socket(str(folder), NAME)
    (folder / "plugins_registry").mkdir()
    found = registration_socket(str(folder), NAME)
    assert found == folder / "plugins_registry" / "local.csi.pileus.dev-reg.sock"


@pytest.mark.real_time
async def test_a_process_registers_itself_also_after_it_was_killed(folder: Path) -> None:
    (folder / "plugins_registry").mkdir()
    flags = ("--cloud-provider=local", "--mode=node", "--node-id=i-1", "--max-volumes-per-node=3")
    serve = ("csi", *flags, f"--kubelet-dir={folder}/")
    path = folder / "plugins_registry" / f"{NAME}-reg.sock"
    async with running(*serve) as process, kubelet_at(path) as kubelet:
        info = await kubelet.info(api.InfoRequest())
        assert (info.type, info.name, [*info.supported_versions]) == ("CSIPlugin", NAME, ["1.0.0"])
        assert info.endpoint == f"{folder}/plugins/{NAME}/csi.sock"
        async with client_of(Path(info.endpoint)) as client:
            assert (await client("NodeGetInfo")).node_id == "i-1"
            assert not (await client("Probe")).ready.value
            await kubelet.notify(accepted())
            assert (await client("Probe")).ready.value
        process.kill()
        await process.wait()
    assert path.exists(), "it had no time to remove it"
    async with running(*serve) as process:
        async with kubelet_at(path) as kubelet:
            assert (await kubelet.info(api.InfoRequest())).name == NAME
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), ENDING) == 0
    assert not path.exists(), "a driver that ended well is not called any more"
