"""The command line and the socket of `pileus csi`; tests/csi has the driver itself."""

import io
import socket
from pathlib import Path

import pytest

from pileus.cli.csi import main
from pileus.cli.terminal import Terminal
from pileus.csi.server import InvalidEndpoint, Services, serving, socket_path


def call(*arguments: str, **environment: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main("pileus csi", arguments, Terminal(out, err, environment))
    return code, out.getvalue(), err.getvalue()


def test_help_names_the_flags_of_the_driver():
    code, out, _ = call("--help")

    assert code == 0
    for flag in (
        "--mode",
        "--endpoint",
        "--kubelet-dir",
        "--node-name",
        "--node-id",
        "--http-endpoint",
        "--metrics-path",
        "--cloud-provider",
    ):
        assert flag in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode=nod"], '--mode cannot be "nod" (known: controller, node, all) (did you mean'),
        (["--max-volumes-per-node=-1"], "--max-volumes-per-node cannot be -1: give 0 or more"),
        (["--mode=node"], "--node-name is not set. Fix: set it to the name of this node"),
        (["--endpoint=tcp://0.0.0.0:1"], '"tcp://0.0.0.0:1" is not a unix socket, such as unix://'),
        (["--endpoint=csi.sock"], '"csi.sock" is not an absolute path: unix:///csi/csi.sock'),
        ([f"--endpoint=unix:///{'x' * 200}"], "is longer than 107 bytes"),
        (["--kubelet-dir=x"], '--kubelet-dir: "x" is not an absolute path, such as /var/lib/'),
        (["--kubelet-dir=/x", "--mode=controller"], "--kubelet-dir is for mode node"),
        (["--kubelet-dir=/missing", "--node-id=i"], "/missing/plugins_registry does not exist"),
        ([f"--kubelet-dir=/{'x' * 99}", "--node-id=i"], "is longer than 107 bytes"),
        (["--kubelet-folder=/x"], "did you mean --kubelet-dir?"),
        (["--http-endpoint=8080"], '"8080" is not an address: give HOST:PORT or :PORT, such as'),
        (["--http-endpoint=:0"], '--http-endpoint: ":0" is not an address'),
        (["--http-endpoint=::1:80"], '"::1:80" is not an address'),
        (["--http-endpoint=[x]:80"], "'x' does not appear to be an IPv4 or IPv6 address"),
        (["--http-endpoint=192.0.2.1:1", "--node-id=i"], "cannot listen on 192.0.2.1:1: "),
        (["--metrics-path=metrics"], '--metrics-path: "metrics" does not begin with /'),
        (["--cloud-provider="], "--cloud-provider cannot be empty"),
        (["--cloud-provider=openstack,local"], "pileus csi serves one cloud, but several are"),
    ],
)
def test_bad_flags_are_explained(arguments: list[str], words: str):
    code, _, err = call("--cloud-provider=local", *arguments)

    assert code == 1
    assert words in err


@pytest.mark.parametrize("endpoint", ["unix:///a/b.sock", "unix:/a/b.sock", "/a/b.sock"])
def test_every_form_of_a_unix_socket_is_understood(endpoint: str):
    assert socket_path(endpoint) == Path("/a/b.sock")


@pytest.mark.real_time
async def test_a_socket_in_use_is_not_taken_and_a_stale_one_is(tmp_path: Path):
    path = tmp_path / "csi.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with pytest.raises(InvalidEndpoint, match="another process serves"):
            async with serving(path, Services({})):
                pass
    async with serving(path, Services({})):
        assert path.is_socket()
    assert not path.exists()
    path.write_text("no socket")
    with pytest.raises(InvalidEndpoint, match="exists and is no socket: it is not removed"):
        async with serving(path, Services({})):
            pass
    assert path.read_text() == "no socket"
    with pytest.raises(InvalidEndpoint, match="csi.sock is not a folder. Fix: give a socket"):
        async with serving(path / "inner.sock", Services({})):
            pass


@pytest.mark.real_time
async def test_a_folder_that_cannot_be_created_is_named_with_the_fix():
    folder = Path("/proc/no-such-folder")
    with pytest.raises(InvalidEndpoint, match=f"cannot create folder {folder}: .* Fix: "):
        async with serving(folder / "csi.sock", Services({})):
            pass
