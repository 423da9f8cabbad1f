import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Wish
from pileus.cloud.errors import (
    Conflict,
    Misconfigured,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unavailable,
)
from pileus.cloud.interface import ProviderConfig
from pileus.cloud.model import Instance, NodeName, NodeRef
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.connect import connect
from pileus_lab.local.http_api import RemoteCloud, check_owner, reaching, serving
from pileus_lab.local.model.account import AddFault, SetQuota
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    ListMachines,
    StopMachine,
)
from pileus_lab.local.model.records import FaultKind
from tests.unit.providers.local.clouds import local_cloud

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def remote(cloud: LocalCloud, directory: Path) -> AsyncGenerator[RemoteCloud]:
    endpoint = directory / "local.sock"
    async with serving(cloud, endpoint), reaching(endpoint) as api:
        yield api


async def test_answers_and_errors_come_through_the_socket_as_they_are(tmp_path: Path):
    cloud = local_cloud()
    async with remote(cloud, tmp_path) as api:
        made = await api.call(CreateMachine(name="a", labels={"x": "y"}))
        with pytest.raises(Conflict, match="another name"):
            await api.call(CreateMachine(name="a"))
        with pytest.raises(NotFound):
            await api.call(StopMachine(machine="b"))
        await api.call(SetQuota(limits={"instances": 1}))
        with pytest.raises(QuotaExceeded):
            await api.call(CreateMachine(name="b"))
        await api.call(AddFault(kind=FaultKind.THROTTLE, seconds=2.5, times=1))
        with pytest.raises(Throttled) as refused:
            await api.call(ListMachines())

        assert made.labels == {"x": "y"}
        assert refused.value.retry_after == 2.5
        assert await api.call(DeleteMachine(machine="a")) is None


async def test_the_provider_finds_what_another_user_of_the_cloud_made(tmp_path: Path):
    async with remote(local_cloud(), tmp_path) as api:
        await api.call(CreateMachine(name="a"))
        config = ProviderConfig(text=f"endpoint: {tmp_path}/local.sock")
        async with connect(config) as cloud:
            assert cloud.instances
            found = await cloud.instances.find([NodeRef(name=NodeName("a"))], fresh=True)

    assert isinstance(found[NodeName("a")], Instance)


@pytest.mark.parametrize(
    ("operation", "body", "status", "text"),
    [
        pytest.param("instances.lst", b"{}", 404, "instances.list", id="unknown"),
        pytest.param("instances.create", b"{", 422, "truncated", id="not JSON"),
        pytest.param("instances.create", b'{"name": 5}', 422, "`$.name`", id="wrong type"),
        pytest.param("instances.create", b'{"nme": "a"}', 422, "nme", id="unknown field"),
    ],
)
async def test_nonsense_is_refused_with_its_place(
    tmp_path: Path, operation: str, body: bytes, status: int, text: str
):
    async with (
        remote(local_cloud(), tmp_path),
        aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(tmp_path / "local.sock"))
        ) as session,
        session.post(f"http://local/v1/{operation}", data=body) as response,
    ):
        assert response.status == status
        assert text in (await response.json())["message"]


async def test_only_the_owner_may_connect(tmp_path: Path):
    async with remote(local_cloud(), tmp_path):
        assert (tmp_path / "local.sock").stat().st_mode & 0o777 == 0o600


async def test_a_folder_that_others_can_write_to_is_refused_by_client_and_server(tmp_path: Path):
    folder = tmp_path / "shared"
    folder.mkdir()
    endpoint, other = folder / "local.sock", folder / "other.sock"
    refused = pytest.raises(Misconfigured, match=r"other users can write .* chmod go-w")
    async with serving(local_cloud(), endpoint), reaching(endpoint) as api:
        for mode in (0o777, 0o775, 0o757):
            folder.chmod(mode)
            with refused:
                await api.call(ListMachines())
            with refused:
                await serving(local_cloud(), other).__aenter__()
        for mode in (0o1777, 0o755):  # sticky as /tmp: others cannot replace the socket
            folder.chmod(mode)
            await api.call(ListMachines())


def test_a_socket_or_folder_of_another_user_is_refused(tmp_path: Path):
    someone, other = 54321, 12345
    endpoint = tmp_path / "folder" / "local.sock"
    check_owner(endpoint, someone)  # not there yet
    endpoint.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(endpoint))
    if os.geteuid() != 0:
        with pytest.raises(Misconfigured, match=r"folder belongs to another user"):
            check_owner(endpoint, someone)
        return

    os.chown(endpoint.parent, other, -1)
    with pytest.raises(Misconfigured, match=r"folder belongs to another user"):
        check_owner(endpoint, someone)
    os.chown(endpoint.parent, someone, -1)
    check_owner(endpoint, someone)
    os.chown(endpoint, other, -1)
    with pytest.raises(Misconfigured, match=r"local\.sock is refused: it belongs to another user"):
        check_owner(endpoint, someone)


async def test_a_folder_that_the_cloud_creates_is_its_owners_alone(tmp_path: Path):
    async with remote(local_cloud(), tmp_path / "new"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


async def test_a_second_cloud_at_the_same_socket_is_refused(tmp_path: Path):
    endpoint = tmp_path / "local.sock"
    async with serving(local_cloud(), endpoint):
        with pytest.raises(Misconfigured, match="already answers at"):
            async with serving(local_cloud(), endpoint):
                pass
        async with reaching(endpoint) as api:
            await api.call(ListMachines())

    assert not endpoint.exists()


async def test_a_socket_left_behind_is_taken_over_but_no_other_file(tmp_path: Path):
    stale, precious = tmp_path / "stale.sock", tmp_path / "precious"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stale))
    precious.write_text("kept")

    async with serving(local_cloud(), stale), reaching(stale) as api:
        await api.call(ListMachines())
    with pytest.raises(Misconfigured, match="is not a socket"):
        async with serving(local_cloud(), precious):
            pass

    assert precious.read_text() == "kept"


@contextmanager
def served(directory: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """`pileus local serve` as a process of its own, answering."""
    command = [sys.executable, "-m", "pileus", "local", "serve", *arguments]
    environment = {**os.environ, "PILEUS_LOCAL": str(directory / "local.sock")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert "is served at" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def networks_of_its_own(folder: Path) -> str:
    """The flag with networks that no other cloud takes while this one is down.

    What a cloud picks itself is free as soon as it ends: a test beside this one would get it.
    """
    second, third = 100 + os.getpid() % 100, os.getpid() // 100 % 250
    file = folder / "local.yaml"
    file.write_text(
        f"endpoint: {folder}/local.sock\n"
        f"internalPool: 127.{second}.{third}.0/25\nbalancerPool: 127.{second}.{third}.128/25\n"
    )
    return f"--config={file}"


async def create_until_killed(
    endpoint: Path, process: subprocess.Popen[str], acknowledged: list[str]
) -> None:
    async with reaching(endpoint) as api:
        for number in range(100):
            acknowledged.append((await api.call(CreateMachine(name=f"m{number}"))).id)
            if number == 20:
                process.send_signal(signal.SIGKILL)


async def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path):
    cloud = (networks_of_its_own(tmp_path), f"--state={tmp_path / 'state.db'}")
    acknowledged: list[str] = []
    with served(tmp_path, *cloud) as process, pytest.raises(Unavailable):
        await create_until_killed(tmp_path / "local.sock", process, acknowledged)

    with served(tmp_path, *cloud):
        async with reaching(tmp_path / "local.sock") as api:
            machines = {one.id for one in (await api.call(ListMachines())).items}

    assert set(acknowledged) <= machines
    assert len(machines) - len(acknowledged) <= 1
    assert len(acknowledged) >= 21


def test_a_second_cloud_with_the_same_file_is_refused(tmp_path: Path):
    state = str(tmp_path / "state.db")
    with served(tmp_path, "--state", state):
        other = subprocess.run(
            [sys.executable, "-m", "pileus", "local", "serve", "--state", state],
            env={**os.environ, "PILEUS_LOCAL": str(tmp_path / "other.sock")},
            check=False,
            capture_output=True,
            text=True,
            timeout=50,
        )

    assert other.returncode == 1
    assert "state.db is in use by another local cloud" in other.stderr


def test_a_cloud_that_is_asked_to_end_leaves_no_socket(tmp_path: Path):
    with served(tmp_path) as process:
        process.terminate()

        assert process.wait(timeout=30) == 0
        assert not (tmp_path / "local.sock").exists()


async def test_traffic_goes_on_without_the_manager_and_comes_back_after_a_kill(tmp_path: Path):
    cloud = (networks_of_its_own(tmp_path), f"--state={tmp_path / 'state.db'}")
    with served(tmp_path, *cloud):
        async with reaching(tmp_path / "local.sock") as api:
            await api.call(CreateMachine(name="a"))
        address = await manage_once(tmp_path / "local.yaml")

        assert await body(f"http://{address}:8080/") == "a"

    with served(tmp_path, *cloud):
        assert await body(f"http://{address}:8080/") == "a"


async def manage_once(file: Path) -> str:
    """A manager comes, makes a balancer, and goes; its address."""
    owner = Owner("c", "u")
    spec = BalancerSpec(
        listeners=frozenset({Listener(port=8080, node_port=30080)}),
        members=frozenset({NodeRef(name=NodeName("a"))}),
    )
    wish = Wish(owner=owner, spec=spec)
    async with connect(ProviderConfig(path=str(file), text=file.read_text())) as cloud:
        assert cloud.balancers
        seen = (await cloud.balancers.observe([wish], deep=True))[owner]
        (change,) = cloud.balancers.changes(wish, seen)
        made = await cloud.balancers.apply(change, seen)
        assert made.balancer is not None
        return made.balancer.ingress[0].ip


async def body(url: str) -> str:
    """The first line of an answer; asked again until there is one."""
    async with aiohttp.ClientSession() as session:
        for _ in range(600):
            try:
                return (await (await session.get(url)).text()).splitlines()[0]
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
    raise TimeoutError(url)


async def test_a_cloud_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pileus_lab.local.http_api.DEADLINE", aiohttp.ClientTimeout(total=0.2))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        async with reaching(tmp_path / "silent.sock") as api:
            with pytest.raises(Unavailable, match="did not answer in time"):
                await api.call(ListMachines())


def test_rejected_is_what_an_unknown_word_becomes():
    from pileus_lab.local.http_api import decode_error, encode_error

    status, body = encode_error(Rejected("no"))

    assert status == 422
    assert isinstance(decode_error(body), Rejected)
    assert isinstance(decode_error(b"<html>"), Unavailable)
