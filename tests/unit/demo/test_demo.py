"""The demo as users start it: a process, that is stopped at any moment and leaves nothing."""

import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from random import Random
from termios import TIOCSWINSZ

import pytest

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

PROGRAM = Path(sys.executable).parent / "pileus"
LIMIT = 120.0
STEPS = 10


@pytest.fixture
def folder() -> Generator[Path]:
    """An empty one with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="pd-") as path:
        yield Path(path)


@contextmanager
def demo(folder: Path, *arguments: str, **more: str) -> Generator[subprocess.Popen[str]]:
    """The demo in a session of its own, with `folder` as the place for temporary files."""
    with subprocess.Popen(
        [PROGRAM, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)} | more,
        start_new_session=True,
        preexec_fn=hear_signals,  # noqa: PLW1509 -- nothing else runs in the child yet
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def hear_signals() -> None:
    """As under a terminal. Who runs tests in the background may have them ignored."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL)


def rest_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    out, _ = child.communicate(timeout=LIMIT)
    return out


def read_until(child: subprocess.Popen[str], text: str) -> str:
    """What it printed up to the line with `text`, which must come before its end."""
    assert child.stdout
    read = ""
    while text not in read:
        line = child.stdout.readline()
        assert line, f"ended without {text!r}:\n{read}"
        read += line
    return read


def assert_nothing_is_left(child: subprocess.Popen[str], folder: Path, printed: str) -> None:
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)
    assert list(folder.iterdir()) == []
    for address, port in re.findall(r"(127\.\d+\.\d+\.\d+):(\d+)", printed):
        with socket.socket() as probe:
            assert probe.connect_ex((address, int(port))) != 0, f"{address}:{port} listens"


def test_once_every_step_holds_and_nothing_is_left(folder: Path):
    with demo(folder, "--once") as child:
        printed = rest_of(child)

    assert child.returncode == 0, printed
    lines = printed.splitlines()
    assert len(lines) == 1 + STEPS, printed
    assert all(line.startswith("ok ") for line in lines[1:]), printed
    assert_nothing_is_left(child, folder, printed)


def test_demos_side_by_side_do_not_meet(folder: Path):
    one, other = folder / "one", folder / "other"
    with (
        demo(folder, "--state-dir", str(one)) as first,
        demo(folder, "--state-dir", str(other)) as second,
    ):
        printed = [read_until(child, "curl http") for child in (first, second)]
        with demo(folder, "--state-dir", str(one)) as third:
            refused = rest_of(third)
        for child in (first, second):
            child.send_signal(signal.SIGINT)
        endings = [rest_of(child) for child in (first, second)]

    assert third.returncode == 1
    assert f"Error: {one} is not empty" in refused
    assert [first.returncode, second.returncode] == [0, 0], endings
    addresses = [set(re.findall(r"127\.[1-9]\d*\.\d+", text)) for text in printed]
    assert all(addresses), printed
    assert addresses[0].isdisjoint(addresses[1])
    assert_nothing_is_left(first, folder, "".join(printed))
    assert_nothing_is_left(second, folder, "".join(printed))


@pytest.mark.parametrize("seed", range(3))
def test_a_signal_at_any_moment_leaves_nothing(folder: Path, seed: int):
    random = Random(f"{seed}/{time.monotonic_ns()}")
    sign = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP][seed]
    delay = random.uniform(0, 4)
    with demo(folder) as child:
        printed = read_until(child, "starting")
        time.sleep(delay)
        child.send_signal(sign)
        printed += rest_of(child)

    told = f"{sign.name} after {delay:.3f} s:\n{printed}"
    assert child.returncode in {0, 128 + sign, -sign}, told
    assert "Traceback" not in printed, told
    assert_nothing_is_left(child, folder, printed)


def test_a_reader_that_goes_away_ends_it(folder: Path):
    with demo(folder) as child:
        printed = read_until(child, "API server at")
        assert child.stdout
        child.stdout.close()

        assert child.wait(LIMIT) == 128 + signal.SIGPIPE

    assert_nothing_is_left(child, folder, printed)


def test_a_failed_step_is_named_with_the_last_lines_of_the_log(folder: Path):
    program = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from pileus_lab.demo import run, scenario\n"
        "hopeless = replace(scenario.STORY[1], act=scenario.just_look, within=0.2)\n"
        "run.STORY = (scenario.STORY[0], hopeless)\n"
        "sys.exit(run.show(run.Options(\n"
        "    once=True, folder=None, out=sys.stdout, console=None)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
        timeout=LIMIT,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert re.search(
        r"^FAILED +\d\.\d s  three instances boot.*no node web-1", done.stdout, re.MULTILINE
    )
    assert "The last lines of its log:" in done.stdout
    assert list(folder.iterdir()) == []


class Screen:
    """A terminal with the demo on it."""

    def __init__(self, folder: Path, *, columns: int, rows: int) -> None:
        self.written = b""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ |= {"TMPDIR": str(folder), "TERM": "xterm-256color"}
            os.execv(PROGRAM, [str(PROGRAM), "demo"])
        ioctl(self._terminal, TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, holds: Callable[[bytes], bool]) -> None:
        deadline = time.monotonic() + LIMIT
        while not holds(self.written):
            assert time.monotonic() < deadline, self.written[-3000:].decode()
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.written += os.read(self._terminal, 65536)

    def press(self, key: bytes) -> int:
        """Return the exit code that it leads to."""
        os.write(self._terminal, key)
        try:
            self.read_until(lambda _: False)
        except OSError:  # the other side is closed
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


@pytest.mark.parametrize("key", [pytest.param(b"\x03", id="ctrl-c"), pytest.param(b"q", id="q")])
def test_on_a_terminal_it_goes_on_until_a_key_and_gives_the_screen_back(folder: Path, key: bytes):
    screen = Screen(folder, columns=80, rows=24)

    screen.read_until(lambda written: b"kubectl get nodes" in written)
    code = screen.press(key)

    leaving, summary = screen.written.rsplit(b"\x1b[?1049l", 1)
    assert code == 0
    assert b"\x1b[?1049h" in leaving
    assert screen.written.rindex(b"\x1b[?25h") > screen.written.rindex(b"\x1b[?25l")
    assert summary.count(b"ok ") == STEPS
    assert list(folder.iterdir()) == []
