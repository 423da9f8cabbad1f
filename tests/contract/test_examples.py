"""The example providers, used as users would: from distributions of their own, by entry point."""

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from pileus.cloud.connection import connected, read_config
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.model import Absent, AddressType, Instance, InstanceState, NodeName, NodeRef
from pileus.cloud.registry import Registry
from pileus.testing.conformance.instances import InstancesLaws
from tests.examples import PROVIDERS, install_examples
from tests.unit.classic.fakes import Access, View, kube_node

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder into which both distributions are installed, found by this process too."""
    target = install_examples(tmp_path_factory.mktemp("site"))
    sys.path.insert(0, str(target))
    yield target
    sys.path.remove(str(target))


def test_another_process_finds_both_by_their_entry_points(installed):
    script = (
        "from pileus.cloud.registry import Registry\n"
        "for one in Registry().listing(): print(one.name, one.origin, one.problem, sep='|')\n"
    )
    paths = os.pathsep.join([str(installed), str(ROOT / "src")])

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    lines = done.stdout.splitlines()
    assert "inventory|pileus-provider-inventory 0.1.0 (pileus_provider_inventory:connect)|" in lines
    assert "shelf|pileus-provider-shelf 0.1.0 (pileus_provider_shelf:connect)|" in lines


class FileHarness:
    """A cloud that is a file, and the provider of that name over it."""

    def __init__(self, provider: str, folder: Path) -> None:
        self.provider = provider
        self.file = folder / "machines.json"
        self.machines: dict[str, dict[str, object]] = {}
        self.view = View()
        self.write()
        self.config = self.file
        if provider == "shelf":
            self.config = folder / "shelf.json"
            self.config.write_text(json.dumps({"inventory": str(self.file)}))

    def write(self) -> None:
        content = {"region": "home", "machines": list(self.machines.values())}
        self.file.write_text(json.dumps(content))

    @asynccontextmanager
    async def connect(self):
        connect = Registry().get(self.provider)
        assert connect
        async with connected(self.provider, connect, read_config(str(self.config))) as cloud:
            assert cloud.instances
            if cloud.leading is None:
                yield cloud.instances
                return
            async with cloud.leading(Access(self.view)):
                yield cloud.instances

    def add(self, name: str) -> NodeRef:
        self.machines[name] = {"name": name, "id": f"id-{name}"}
        self.view.known_nodes[name] = kube_node(name)
        self.write()
        return NodeRef(name=NodeName(name))

    def remove(self, name: str) -> None:
        del self.machines[name]
        self.write()

    def stop(self, name: str) -> None:
        self.machines[name]["state"] = "stopped"
        self.write()

    @contextmanager
    def broken(self):
        hidden = self.file.rename(self.file.with_suffix(".hidden"))
        yield
        hidden.rename(self.file)


class Example(InstancesLaws):
    provider = ""

    @pytest.fixture(autouse=True)
    def _furnish(self, installed, tmp_path) -> None:
        self.folder = tmp_path

    def make(self):
        return FileHarness(self.provider, self.folder)


class TestModernExample(Example):
    provider = "inventory"


class TestClassicExample(Example):
    provider = "shelf"


@pytest.fixture(params=PROVIDERS)
def harness(request, installed, tmp_path) -> FileHarness:
    harness = FileHarness(request.param, tmp_path)
    harness.file.write_text((ROOT / "examples" / "machines.yaml").read_text())
    harness.view.known_nodes = {name: kube_node(name) for name in ("node-1", "node-2", "node-3")}
    return harness


async def test_the_shipped_inventory_says_all_there_is_to_say(harness):
    nodes = [NodeRef(name=NodeName(f"node-{i}")) for i in (1, 2, 3)]

    async with harness.connect() as instances:
        known = await instances.find(nodes, fresh=False)
        now = await instances.find(nodes, fresh=True)

    first = known[nodes[0].name]
    assert isinstance(first, Instance)
    assert first.provider_id == f"{harness.provider}://4c4c4544-0001"
    assert (first.type, first.zone, first.region) == ("desk-pc", "cellar", "home")
    assert {address.type for address in first.addresses} == {AddressType.INTERNAL_IP}
    assert [address.address for address in first.addresses] == ["192.168.1.11", "fd00::11"]
    assert first.labels == {"home.example/shelf": "left"}
    second = now[nodes[1].name]
    assert isinstance(second, Instance)
    assert second.state is InstanceState.STOPPED
    assert isinstance(now[nodes[2].name], Absent)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("machines: 7", 'needs a list "machines"'),
        ("machines: [{name: a}]", "machine 1 of the inventory needs a name and an id"),
        (
            "machines: [{name: a, id: b, sone: c}]",
            r'unknown key "sone" \(did you mean "zone"\?\)',
        ),
        ("machines: [{name: a, id: b, addresses: [x]}]", "machine 1 .*'x' does not appear"),
        ("machines: [{name: a, id: b}, {name: c, id: b}]", "twice"),
        ("machines: [", "is not YAML"),
    ],
)
async def test_a_mistake_in_the_inventory_is_told_at_start(installed, tmp_path, content, text):
    harness = FileHarness("inventory", tmp_path)
    harness.file.write_text(content)

    with pytest.raises(CloudError, match=text):
        async with harness.connect():
            pytest.fail("connected")


async def test_the_classic_example_says_that_it_needs_a_file(installed):
    connect = Registry().get("shelf")
    assert connect

    with pytest.raises(Misconfigured, match="needs a file: set --cloud-config"):
        async with connected("shelf", connect, read_config("")):
            pytest.fail("connected")
