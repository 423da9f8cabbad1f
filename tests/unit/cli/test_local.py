"""`pileus local`: what is written to a terminal, a pipe and a program, and what is refused."""

import io
import json
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from pileus.cli.main import dispatch
from pileus.cli.terminal import Terminal
from pileus.dataclass import dataclass
from pileus_lab.cli.local_commands import COMMANDS

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkpD2FVDhm5yEMSYXpQJvAVGcCbWcR0S2Lw3ZbwFvzE me"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A cloud that is served in a thread of its own."""
    import asyncio

    from pileus_lab.local.http_api import serving
    from tests.unit.providers.local.clouds import local_cloud

    path = tmp_path_factory.mktemp("cloud") / "local.sock"
    ready, done = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with serving(local_cloud(), path):
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield path
    loops[0].call_soon_threadsafe(done.set)
    thread.join()


class Cloud:
    def __init__(self, endpoint: Path) -> None:
        self.endpoint = endpoint
        self.width = 0

    def __call__(self, line: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        terminal = Wide(out, err, {"PILEUS_LOCAL": str(self.endpoint)}, columns=self.width)
        return dispatch(["local", *line.split()], terminal), out.getvalue(), err.getvalue()

    def json(self, line: str):
        code, out, err = self(f"{line} -o json")
        assert (code, err) == (0, "")
        return json.loads(out)


@dataclass(frozen=True)
class Wide(Terminal):
    columns: int = 0

    def width(self, stream: object) -> int:
        return self.columns


@pytest.fixture
def cloud(endpoint: Path) -> Generator[Cloud]:
    cloud = Cloud(endpoint)
    yield cloud
    for balancer in cloud.json("balancers list"):
        cloud(f"balancers delete {balancer['id']}")
    for route in cloud.json("routes list"):
        cloud(f"routes delete {route['destination']}")
    for machine in cloud.json("instances list"):
        cloud(f"instances delete {machine['id']}")
    for volume in cloud.json("volumes list"):
        cloud(f"volumes delete {volume['id']}")
    cloud("fault remove all")


def test_instances_are_created_shown_stopped_started_and_deleted(cloud: Cloud):
    assert cloud("instances")[1] == "No instances.\n"
    code, out, _ = cloud("instances create web-1 web-2 --type medium --zone local-1b --label a=b")
    assert code == 0
    assert [line.split()[:4] for line in out.splitlines()[1:]] == [
        ["web-1", "running", "medium", "local-1b"],
        ["web-2", "running", "medium", "local-1b"],
    ]
    assert cloud("instances stop web-1")[1].splitlines()[1].split()[1] == "stopped"
    assert cloud("instances start web-1")[1].splitlines()[1].split()[1] == "running"
    assert cloud("instances delete web-1 web-2")[1] == "Deleted web-1, web-2.\n"
    assert cloud.json("instances list") == []


def test_programs_get_json(cloud: Cloud):
    cloud("instances create web-1 --ipv6 --external")

    (machine,) = cloud.json("instances")

    assert machine["name"] == "web-1"
    assert len(machine["internal"]) == 2
    assert len(machine["external"]) == 1


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_gets_no_line_that_is_too_long_and_every_name(cloud: Cloud, width: int):
    cloud("instances create web-1 web-2 --ipv6 --external")
    cloud.width = width

    lines = cloud("instances list")[1].splitlines()

    assert max(map(len, lines)) <= width
    assert sum("web-" in line for line in lines) == 2


LONG = "a-very-long-name-of-an-instance-in-some-zone-of-the-cloud-123456"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("noun", "verb"),
    [
        (noun, verb)
        for noun, verbs in COMMANDS.items()
        for verb in ("list", "health")
        if verb in verbs
    ],
)
def test_every_table_fits_a_terminal_with_long_names(
    cloud: Cloud, noun: str, verb: str, width: int
):
    cloud(f"instances create {LONG} --ipv6 --external")
    cloud(f"balancers create {LONG} --port 80:30080 --port 53:30053/udp --member {LONG} --ipv6")
    cloud(f"routes create fd00:1234:5678:9abc:def0::/80 {LONG} --cluster {LONG}")
    cloud(f"volumes create {LONG} 5")
    cloud(f"clusters create {LONG} https://{LONG}.example:6443")
    cloud("fault add latency --where balancers.* --rate 0.123456789 --times 1000000")
    cloud.width = width

    code, out, err = cloud(f"{noun} {verb}")

    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= width
    cloud.width = 0
    cloud(f"clusters delete {LONG}")


def test_a_pipe_gets_each_row_on_one_line(cloud: Cloud):
    cloud("instances create web-1 --ipv6 --external")

    lines = cloud("instances list")[1].splitlines()

    assert len(lines) == 2
    assert "local://" in lines[1]


def test_balancers_are_created_filled_emptied_and_deleted(cloud: Cloud):
    cloud("instances create a b")
    cloud("balancers create web --port 80:30080 --port 53:30053/udp --member a --source 10.0.0.0/8")

    (row,) = cloud("balancers list")[1].splitlines()[1:]
    assert row.split()[0] == "web"
    assert row.split()[2:5] == ["53:30053/UDP", "80:30080/TCP", "1/1"]
    assert "manual" in row
    assert cloud("balancers add web b")[1] == "Members of web: a, b.\n"
    cloud("instances stop b")
    assert cloud("balancers health")[1].splitlines()[2].endswith("instance is stopped")
    assert cloud("balancers remove web a")[1] == "Members of web: b.\n"
    assert cloud("balancers delete web")[0] == 0
    assert cloud.json("balancers") == []


def test_two_balancers_of_one_name_are_told_apart_by_id(cloud: Cloud):
    cloud("balancers create web")
    cloud("balancers create web")

    code, _, err = cloud("balancers delete web")

    assert code == 1
    assert "2 balancers" in err
    assert "lb-" in err


def test_volumes_are_attached_grown_and_deleted(cloud: Cloud):
    cloud("instances create a --zone local-1a")
    cloud("volumes create data 10")

    assert cloud("volumes attach data a")[1].splitlines()[1].split()[-2:] == ["a", "/dev/vdb"]
    assert "20 GiB" in cloud("volumes resize data 20")[1]
    assert "detach it first" in cloud("volumes delete data")[2]
    assert cloud("volumes detach data")[1].splitlines()[1].split()[-1] == "-"
    assert cloud("volumes delete data")[0] == 0


def test_routes_are_shown_even_when_their_target_is_gone(cloud: Cloud):
    cloud("instances create a")
    cloud("routes create 10.1.0.0/24 a --cluster blue")
    cloud("instances delete a")

    assert cloud("routes")[1].splitlines()[1].split() == [
        *("10.1.0.0/24", "a", "blue", "target", "is", "gone")
    ]
    assert cloud("routes delete 10.1.0.0/24")[0] == 0


def test_keys_are_shown_by_fingerprint(cloud: Cloud, tmp_path: Path):
    file = tmp_path / "id.pub"
    file.write_text(PUBLIC_KEY)

    assert "root may log in with SHA256:" in cloud(f"keys add root {file}")[1]
    assert cloud("keys list")[1].splitlines()[1].split()[:2] == ["root", "ssh-ed25519"]
    assert cloud(f"keys remove root {file}")[0] == 0
    assert cloud.json("keys") == []


def test_clusters_are_known_and_forgotten(cloud: Cloud):
    cloud("clusters create blue 127.0.0.1:6443")

    assert cloud.json("clusters") == [{"name": "blue", "master": "127.0.0.1:6443"}]
    cloud("clusters delete blue")
    assert cloud.json("clusters") == []


def test_quotas_are_shown_and_changed(cloud: Cloud):
    code, out, _ = cloud("quota set instances=0")

    assert code == 0
    assert out.splitlines()[1].split() == ["instances", "0", "0"]
    assert "quota set instances=1" in cloud("instances create a")[2]
    cloud("quota set instances=100")


def test_faults_are_added_shown_and_removed(cloud: Cloud):
    code, out, _ = cloud("fault add latency --where balancers.* --rate 0.5 --times 3 --seconds 2")

    assert code == 0
    fields = out.splitlines()[1].split()
    assert fields[1:] == ["latency", "balancers.*", "0.5", "3", "2", "s"]
    assert cloud(f"fault remove {fields[0]}")[0] == 0
    assert cloud("fault")[1] == "No faults.\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("instance list", "did you mean pileus local instances?", id="noun"),
        pytest.param("instances lst", "did you mean pileus local instances list?", id="verb"),
        pytest.param("instances list --ouput json", "did you mean --output?", id="flag"),
        pytest.param("instances list -o jsn", "did you mean json?", id="output"),
        pytest.param("instances create a --type smal", "did you mean small?", id="choice"),
        pytest.param("instances create", "missing NAME", id="missing"),
        pytest.param("instances create a --label x", "key=value", id="label"),
        pytest.param("instances delete nobody", 'no instance "nobody"', id="delete"),
        pytest.param("instances list more", 'unknown argument "more"', id="extra"),
        pytest.param("balancers create b --port 80", "PORT:NODEPORT", id="port"),
        pytest.param("balancers create b --drain soon", "invalid int", id="number"),
        pytest.param("balancers delete nothing", 'no balancer "nothing"', id="balancer"),
        pytest.param("volumes attach nothing a", 'no volume "nothing"', id="volume"),
        pytest.param("routes delete 10.0.0.0/8", "no route to 10.0.0.0/8", id="route"),
        pytest.param("routes delete here", "not the destination", id="cidr"),
        pytest.param("quota set instances=many", "whole number", id="quota"),
        pytest.param("quota set instnces=1", 'did you mean "instances"', id="quota name"),
        pytest.param("keys add root /no/such/file", "/no/such/file", id="key file"),
        pytest.param("fault add eror", "did you mean error?", id="fault"),
        pytest.param("fault add error --where instance.list", "instances.list", id="where"),
        pytest.param("nodes --kubeconfig /no/such", "/no/such", id="kubeconfig"),
        pytest.param("fault remove f-1", 'no fault "f-1"', id="no fault"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(cloud: Cloud, line: str, expected: str):
    code, out, err = cloud(line)

    assert (code, out) == (1, "")
    assert expected in err


@pytest.mark.parametrize(
    "line", ["", "--help", "instances create --help", "serve --help", "nodes --help"]
)
def test_help_is_no_error(cloud: Cloud, line: str):
    code, out, err = cloud(line)

    assert (code, err) == (0, "")
    assert "pileus local" in out


def test_a_bad_configuration_is_refused_before_anything_is_served(cloud: Cloud, tmp_path: Path):
    file = tmp_path / "local.yaml"
    file.write_text("zons: [a]")

    code, _, err = cloud(f"serve --config {file}")

    assert code == 1
    assert f"{file}" in err
    assert 'did you mean "zones"' in err
