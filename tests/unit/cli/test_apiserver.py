"""`pileus apiserver` serves until told to stop, and says clearly why it cannot."""

import io
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pileus.cli.terminal import Terminal
from pileus_lab.cli.apiserver import main

pytestmark = pytest.mark.real_time


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main("pileus apiserver", arguments, Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nope"], 'unknown flag "--nope"'),
        (["--port", "x"], "argument --port: invalid int value: 'x'"),
        (["--port", "70000"], "--port 70000: must be between 0 and 65535"),
        (["--service-cluster-ip-range", "10.0.0.1/8"], "10.0.0.1/8 has host bits set"),
        (["--service-cluster-ip-range", "10.0.0.0/8,11.0.0.0/8"], "one network per family"),
        (["--service-node-port-range", "5"], "should be like 30000-32767"),
    ],
)
def test_a_wrong_flag_is_told(arguments: list[str], told: str):
    code, _, err = call(*arguments)

    assert code == 1
    assert told in err


def test_help_lists_the_flags():
    code, out, _ = call("--help")

    assert code == 0
    assert "--data-dir" in out


def test_a_busy_port_is_told():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, _, err = call("--port", str(port))

    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: the port is in use\nuse another --port" in err


def test_a_damaged_database_is_told(tmp_path: Path):
    (tmp_path / "apiserver.db").write_bytes(b"x" * 9000)

    code, _, err = call("--port", "0", "--data-dir", str(tmp_path))

    assert code == 1
    assert str(tmp_path / "apiserver.db") in err


def test_it_runs_until_it_is_told_to_stop(tmp_path: Path):
    out = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "pileus", "apiserver", "--port", "0"]
    command += ["--kubeconfig-out", str(out), "--data-dir", str(tmp_path / "data")]

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        server.stderr.readline()
        server.send_signal(signal.SIGTERM)

    url = json.loads(out.read_bytes())["clusters"][0]["cluster"]["server"]
    assert first == f"Serving the Kubernetes API on {url}\n"
    assert server.returncode == 0
    assert out.stat().st_mode & 0o077 == 0
