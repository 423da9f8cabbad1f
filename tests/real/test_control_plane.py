"""The control plane that the other tests here rely on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane, leash
from pileus.version import KUBERNETES

VERSION = "PILEUS_CONTROL_PLANE_VERSION"
"""Set by `make test-skew`, which tests with an older one."""


def test_it_is_the_release_that_we_speak_for(control_plane: ControlPlane) -> None:
    told = json.loads(control_plane.kubectl("version", "--output=json"))

    assert told["serverVersion"]["gitVersion"] == os.environ.get(VERSION, KUBERNETES)


def test_it_keeps_its_objects_when_it_is_killed_and_started_again(
    control_plane: ControlPlane,
) -> None:
    control_plane.kubectl("create", "namespace", "kept")

    control_plane.end("kube-apiserver", at_once=True)
    control_plane.start_api_server()

    assert control_plane.kubectl("get", "namespace", "kept", "--output=name") == "namespace/kept\n"


@pytest.mark.skipif(not leash(), reason="needs setpriv")
def test_what_is_on_the_leash_dies_with_who_started_it() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *leash(), "sleep", "600"], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    wait_until(lambda: command_of(child).startswith("sleep"))

    owner.kill()
    owner.communicate()

    wait_until(lambda: command_of(child) == "")


OWNER = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
child.wait()
"""


def command_of(pid: int) -> str:
    """What a process runs; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come about within 30 s")
