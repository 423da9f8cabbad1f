"""The FlexVolume driver: exact answers, the local cloud, and loop devices where root can."""

import asyncio
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pileus.cli.flexvolume import VARIABLE, main
from pileus.cli.main import is_flexvolume
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Failure, Instance, InstanceId
from pileus.cloud.volume import VolumeState
from pileus.flexvolume.attachment import Attachments
from pileus.flexvolume.calls import SIGNATURES, Call
from pileus.kube.model.core_v1 import FlexSource, PersistentVolume, PersistentVolumeSpec
from pileus.volumes import devices
from pileus.volumes.operations import Operations
from pileus_lab.apiserver.call import Request
from pileus_lab.apiserver.identity import authenticated
from pileus_lab.apiserver.in_process import MASTER
from pileus_lab.apiserver.server import ServerInfo, Settings, serving_api
from tests.contract.storage import StorageHarness
from tests.loop_devices import ONE_WORKER, loop_device, needs_loop_devices
from tests.real.local_cloud import LocalCloud, local_cloud

MIB = 1 << 20
ID = "vol-0123456789ab"
DRIVER = "pileus.dev/local"
NAME = "shared"
"""Of the PersistentVolume; `mountdevice` gets a directory with this name."""
OPTIONS = {
    "volumeID": ID,
    "kubernetes.io/pvOrVolumeName": NAME,
    "kubernetes.io/fsType": "ext4",
    "kubernetes.io/readwrite": "rw",
}

pytestmark = ONE_WORKER


def called(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the answer; both streams together have to be one JSON object."""
    terminal = Terminal(io.StringIO(), io.StringIO(), environment)
    code = main("pileus flexvolume", arguments, terminal)
    printed = terminal.out.getvalue() + terminal.err.getvalue()  # type: ignore[attr-defined]
    return code, json.loads(printed)


def succeeded(*arguments: str, **environment: str) -> dict[str, Any]:
    code, found = called(*arguments, **environment)
    assert (code, found["status"]) == (0, "Success"), found
    return found


def options(**more: str) -> str:
    return json.dumps(OPTIONS | more)


# -- answers -----------------------------------------------------------------------------------


def test_init_declares_what_the_driver_can_do() -> None:
    assert succeeded("init")["capabilities"] == {
        "attach": True,
        "selinuxRelabel": True,
        "supportsMetrics": True,
        "fsGroup": True,
        "requiresFSResize": True,
    }


def test_the_name_of_a_volume_is_its_id() -> None:
    assert succeeded("getvolumename", options()) == {"status": "Success", "volumeName": ID}


@pytest.mark.parametrize("name", ["provision", ""])
def test_an_unknown_call_is_not_supported(name: str) -> None:
    message = f'unknown call "{name}"'
    assert called(name, "x") == (1, {"status": "Not supported", "message": message})


def test_a_call_that_is_misspelled_names_the_right_one() -> None:
    assert 'did you mean "attach"?' in called("atach")[1]["message"]


def test_a_configuration_that_is_missing_or_misspelled_is_named(tmp_path: Path) -> None:
    missing = called("attach", options(), "n1", PILEUS_FLEXVOLUME_CONFIG="/no/such.yaml")
    assert missing[1]["message"].startswith("/no/such.yaml: --cloud-provider cannot be empty")
    assert "The file does not exist. Fix: create it" in missing[1]["message"]

    file = tmp_path / "flexvolume.yaml"
    file.write_text("cloud-providr: local\n")
    wrong = called("attach", options(), "n1", PILEUS_FLEXVOLUME_CONFIG=str(file))
    assert 'unknown key "cloud-providr"' in wrong[1]["message"]
    assert "did you mean" in wrong[1]["message"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the call is missing"),
        (("attach", "{}"), "attach has 1 arguments instead of 2: attach OPTIONS NODE"),
        (("getvolumename", "{"), "the options are not JSON"),
        (("getvolumename", "[]"), "the options are not a JSON object"),
        (("getvolumename", "{}"), "the options lack volumeID"),
        (
            ("getvolumename", options(**{"kubernetes.io/fsType": "ext5"})),
            'unknown filesystem "ext5" (did you mean "ext4"?)',
        ),
        (("attach", options(), "n1"), "--cloud-provider cannot be empty"),
    ],
)
def test_a_wrong_call_is_a_failure_with_the_reason(
    arguments: tuple[str, ...], message: str
) -> None:
    code, found = called(*arguments, **{VARIABLE: "/no/such/file"})

    assert (code, found["status"]) == (1, "Failure")
    assert message in found["message"]


@pytest.mark.parametrize(
    ("path", "is_driver"),
    [
        ("/exec/pileus.dev~local/local", True),
        ("pileus.dev~openstack/openstack", True),
        ("/usr/bin/pileus", False),
        ("/exec/pileus.dev~local/other", False),
        ("/home/~/x", False),
        ("", False),
    ],
)
def test_the_program_knows_by_its_path_that_it_is_a_driver(path: str, is_driver: bool) -> None:
    assert is_flexvolume(path) is is_driver


# -- the local cloud ---------------------------------------------------------------------------


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with local_cloud(tmp_path) as served:
        yield served


@pytest.fixture
def api() -> Generator[ServerInfo]:
    """An API server on loopback, in a thread of its own."""
    ready, found, stop = threading.Event(), list[ServerInfo](), list[Callable[[], object]]()

    async def serve() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(done.set))
        async with serving_api(Settings(port=0)) as server:
            found.append(server)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    stop[0]()
    thread.join()


@pytest.fixture
def config(cloud: LocalCloud, api: ServerInfo, tmp_path: Path) -> dict[str, str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(api.kubeconfig())
    return configured(cloud, tmp_path, kubeconfig=str(kubeconfig))


def configured(cloud: LocalCloud, folder: Path, **more: str) -> dict[str, str]:
    file = folder / "flexvolume.yaml"
    flags = {"cloud-provider": "local", "cloud-config": str(cloud.config), "cluster-id": "c1"}
    file.write_text(json.dumps(flags | more))
    return {VARIABLE: str(file)}


def add_persistent_volume(api: ServerInfo, name: str, volume: str, driver: str = DRIVER) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "flexVolume": {"driver": driver, "options": {"volumeID": volume}},
        },
    }
    request = Request(
        method="POST",
        path="/api/v1/persistentvolumes",
        body=json.dumps(body).encode(),
        peer=authenticated(MASTER),
    )
    assert api.api.respond(request).status == 201


def created(cloud: LocalCloud, name: str = "data") -> str:
    """Returns the ID of a new volume."""
    cloud.pileus("volumes", "create", name, "1")
    (found,) = [each["id"] for each in cloud.show("volumes") if each["name"] == name]
    return found


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_a_volume_of_the_local_cloud_is_attached_grown_and_detached(
    cloud: LocalCloud, api: ServerInfo, config: dict[str, str]
) -> None:
    for name in ("n1", "n2"):
        cloud.pileus("instances", "create", name)
    identity = created(cloud)
    add_persistent_volume(api, NAME, identity)
    given = options(volumeID=identity)

    assert succeeded("isattached", given, "n1", **config)["attached"] is False
    device = succeeded("attach", given, "n1", **config)["device"]
    assert succeeded("attach", given, "n1", **config)["device"] == device
    assert succeeded("isattached", given, "n1", **config)["attached"] is True
    assert succeeded("isattached", given, "n2", **config)["attached"] is False
    code, second = called("attach", given, "n2", **config)
    grown = succeeded("expandvolume", given, "/mnt", str(3 << 30), str(1 << 30), **config)
    succeeded("detach", NAME, "n2", **config)
    assert succeeded("isattached", given, "n1", **config)["attached"] is True
    succeeded("detach", NAME, "n1", **config)
    succeeded("detach", NAME, "n1", **config)

    assert device
    assert (code, second["status"]) == (1, "Failure")
    assert grown["volumeNewSize"] == 3 << 30
    assert succeeded("isattached", given, "n1", **config)["attached"] is False


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_a_pod_reaches_no_volume_that_no_persistent_volume_of_the_driver_names(
    cloud: LocalCloud, api: ServerInfo, config: dict[str, str]
) -> None:
    """Whoever creates a pod chooses the name of its volume and the ID, but no PersistentVolume."""
    cloud.pileus("instances", "create", "n1")
    own, foreign = created(cloud, "own"), created(cloud, "foreign")
    add_persistent_volume(api, "pv-own", own)
    add_persistent_volume(api, "pv-other", foreign, driver="example.com/other")
    cloud.pileus("volumes", "attach", foreign, "n1")
    before = cloud.show("volumes")

    for name in ("", "data", "pv-own", "pv-other", foreign):
        given = options(**{"volumeID": foreign, "kubernetes.io/pvOrVolumeName": name})
        for call in (
            ("attach", given, "n1"),
            ("isattached", given, "n1"),
            ("expandvolume", given, "/mnt", str(9 << 30), "1"),
        ):
            code, found = called(*call, **config)
            assert (code, found["status"]) == (1, "Failure"), (name, call[0])
            assert "A flexVolume in a pod is not supported" in found["message"]
    for name in ("data", "pv-other", foreign):
        code, found = called("detach", name, "n1", **config)
        assert code == 1, name
        assert f'there is no PersistentVolume "{name}" of driver {DRIVER}' in found["message"]

    assert cloud.show("volumes") == before


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_without_an_api_server_no_volume_is_attached(cloud: LocalCloud, tmp_path: Path) -> None:
    cloud.pileus("instances", "create", "n1")
    given = options(volumeID=created(cloud))

    code, found = called("attach", given, "n1", **configured(cloud, tmp_path))

    assert code == 1
    assert "the API server is not known" in found["message"]
    assert not any(each.get("machine") for each in cloud.show("volumes"))


@pytest.mark.real_time
@pytest.mark.timeout(120)
def test_what_does_not_exist_is_a_failure_or_already_detached(
    cloud: LocalCloud, api: ServerInfo, config: dict[str, str]
) -> None:
    identity = created(cloud)
    add_persistent_volume(api, NAME, identity)

    succeeded("detach", NAME, "no-such-node", **config)
    _, no_node = called("attach", options(volumeID=identity), "no-such-node", **config)
    _, bad_size = called("expandvolume", options(volumeID=identity), "/mnt", "0", "0", **config)

    assert no_node["message"] == "node no-such-node has no instance in the cloud"
    assert bad_size["message"] == 'the new size "0" is not a number of bytes'


class OneMachine:
    async def find(self, nodes: Any, *, fresh: bool) -> Any:
        assert fresh
        return {nodes[0].name: Instance(id=InstanceId("m1"), provider_id="x://m1")}


async def test_a_volume_is_detached_by_the_name_of_its_persistent_volume() -> None:
    """Kubernetes passes no other name to this call."""
    harness = StorageHarness()
    machine, identity = harness.add_machine("m1"), harness.add_unmarked("data")
    assert identity is not None

    async def read(name: str) -> PersistentVolume | None:
        assert name == "pv-data"
        flex = FlexSource(driver=DRIVER, options={"volumeID": identity})
        return PersistentVolume(spec=PersistentVolumeSpec(flex_volume=flex))

    async with harness.connect() as volumes:
        operations = Operations(volumes, "c1")
        await operations.attach(identity, machine)
        attachments = Attachments(operations, OneMachine(), DRIVER, read)
        detached = await attachments.detach(Call("detach", {"VOLUME": "pv-data", "NODE": "n1"}))
        left = await operations.get(identity)

    assert detached.status == "Success"
    assert left.attachments == ()


@dataclass
class Answers:
    """A cloud that gives the same answer about every machine."""

    found: Mapping[str, Any]

    async def find(self, nodes: Any, *, fresh: bool) -> Any:
        return self.found


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="no answer"),
        pytest.param({"n1": Failure(Unavailable("later"))}, id="failed"),
    ],
)
async def test_a_volume_is_not_reported_as_detached_if_the_cloud_does_not_answer_for_the_node(
    found: Mapping[str, Any],
) -> None:
    harness = StorageHarness()
    machine, identity = harness.add_machine("m1"), harness.add_unmarked("data")
    assert identity is not None

    async def read(name: str) -> PersistentVolume:
        flex = FlexSource(driver=DRIVER, options={"volumeID": identity})
        return PersistentVolume(spec=PersistentVolumeSpec(flex_volume=flex))

    async with harness.connect() as volumes:
        operations = Operations(volumes, "c1")
        await operations.attach(identity, machine)
        attachments = Attachments(operations, Answers(found), DRIVER, read)
        with pytest.raises(Unavailable):
            await attachments.detach(Call("detach", {"VOLUME": "pv-data", "NODE": "n1"}))


async def test_a_volume_that_is_being_detached_is_not_attached() -> None:
    harness = StorageHarness()
    machine, identity = harness.add_machine("m1"), harness.add_unmarked("data")
    assert identity is not None

    async def read(name: str) -> PersistentVolume:
        flex = FlexSource(driver=DRIVER, options={"volumeID": identity})
        return PersistentVolume(spec=PersistentVolumeSpec(flex_volume=flex))

    async with harness.connect() as volumes:
        operations = Operations(volumes, "c1")
        attachments = Attachments(operations, OneMachine(), DRIVER, read)
        call = Call("isattached", {"OPTIONS": options(volumeID=identity), "NODE": "n1"})
        await operations.attach(identity, machine)
        before = (await attachments.is_attached(call)).fields
        await volumes.detach("c1", identity, machine)
        seen = await operations.get(identity)
        after = (await attachments.is_attached(call)).fields

    assert before == {"attached": True}
    assert seen.state is VolumeState.DETACHING
    assert after == {"attached": False}


@pytest.mark.real_time
def test_a_link_with_the_name_of_a_driver_answers(tmp_path: Path) -> None:
    link = tmp_path / "pileus.dev~local" / "local"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).parent / "pileus")

    done = subprocess.run([link, "init"], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout + done.stderr)["status"] == "Success"


# -- devices -----------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yields an empty block device that shows the ID of the volume."""
    with loop_device(tmp_path / f"{ID}.img") as device:
        yield device


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_a_volume_is_mounted_for_two_pods_and_keeps_its_data(disk: Path, tmp_path: Path) -> None:
    shared, pods = tmp_path / "shared", [tmp_path / "pod1", tmp_path / "pod2"]

    assert succeeded("waitforattach", "/dev/guessed", options()) == {
        "status": "Success",
        "device": str(disk),
    }
    for _ in range(2):
        succeeded("mountdevice", str(shared), str(disk), options())
        for pod in pods:
            succeeded("mount", str(pod), options())
    (pods[0] / "file").write_text("data")
    assert (pods[1] / "file").read_text() == "data"
    for _ in range(2):
        for pod in pods:
            succeeded("unmount", str(pod))
        succeeded("unmountdevice", str(shared))
    assert not shared.exists()

    succeeded("mountdevice", str(shared), str(disk), options())
    assert (shared / "file").read_text() == "data"


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_a_device_with_other_data_is_never_formatted(disk: Path, tmp_path: Path) -> None:
    with disk.open("r+b") as file:
        file.write(b"precious")
    before = disk.read_bytes()

    code, found = called("mountdevice", str(tmp_path / "shared"), str(disk), options())

    assert (code, found["status"]) == (1, "Failure")
    assert "it is not formatted" in found["message"]
    assert disk.read_bytes() == before


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_a_filesystem_grows_with_its_device(disk: Path, tmp_path: Path) -> None:
    """Without a mount: growing a mounted one needs more rights than some containers have."""
    shared, sizes = str(tmp_path / "shared"), (str(128 * MIB), str(64 * MIB))
    succeeded("mountdevice", shared, str(disk), options())
    succeeded("expandfs", options(), str(disk), shared, *sizes)
    succeeded("unmountdevice", shared)
    os.truncate(tmp_path / f"{ID}.img", 128 * MIB)
    subprocess.run(["losetup", "--set-capacity", str(disk)], check=True)

    for _ in range(2):
        succeeded("expandfs", options(), str(disk), shared, *sizes)

    assert devices.filesystem_size(disk, "ext4") == 128 * MIB


@needs_loop_devices
@pytest.mark.real_time
def test_a_directory_with_another_mount_is_not_taken_for_the_volume(
    disk: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(other)], check=True)
    try:
        _, mounted = called("mountdevice", str(other), str(disk), options())
        _, grown = called("expandfs", options(), str(disk), str(other), "1", "1")
    finally:
        subprocess.run(["umount", str(other)], check=True)

    assert mounted["message"] == f"{other} is already a mount of tmpfs, not of {disk}"
    assert grown["message"] == f"{other} is a mount of tmpfs, not of {disk}"


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_a_pod_that_takes_the_name_of_a_persistent_volume_gets_no_other_disk(
    disk: Path, tmp_path: Path
) -> None:
    """kubelet mounts the directory of that PersistentVolume itself, if it may."""
    others, pod = tmp_path / "pv-of-others", tmp_path / "pod"
    unmounted = called("mount", str(pod), options())
    succeeded("mountdevice", str(others), str(disk), options())

    assert called("mount", str(pod), options()) == (1, {"status": "Not supported"})
    assert unmounted == (1, {"status": "Not supported"})
    assert not pod.exists()
    assert devices.is_block_device(disk)


@needs_loop_devices
@pytest.mark.real_time
@pytest.mark.timeout(60)
def test_a_read_only_volume_is_neither_formatted_nor_written(disk: Path, tmp_path: Path) -> None:
    read_only = options(**{"kubernetes.io/readwrite": "ro"})
    before = disk.read_bytes()

    code, _ = called("mountdevice", str(tmp_path / "shared"), str(disk), read_only)

    assert code == 1
    assert disk.read_bytes() == before

    subprocess.run(["mkfs.ext4", "-q", "-F", str(disk), "16M"], check=True)
    before = disk.read_bytes()
    _, grown = called("expandfs", read_only, str(disk), str(tmp_path / "shared"), "1", "1")
    assert grown["message"] == f"volume {ID} is read-only: its filesystem is not grown"
    assert disk.read_bytes() == before


def test_a_volume_that_shows_no_id_is_mounted_by_kubelet_itself(tmp_path: Path) -> None:
    found = called("mount", str(tmp_path / "pod"), options(volumeID="vol-not-on-this-node"))

    assert found == (1, {"status": "Not supported"})


def test_every_call_of_the_specification_is_known() -> None:
    assert set(SIGNATURES) == {
        *("init", "getvolumename", "attach", "detach", "isattached", "waitforattach"),
        *("mountdevice", "unmountdevice", "mount", "unmount", "expandvolume", "expandfs"),
    }
