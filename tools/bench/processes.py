"""The processes of the benchmark: the managers, the simulated cloud, and what they cost."""

import compileall
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.objects import machine
from tools.go_program import GoProgram

from pileus.testing.control_plane import free_ports, leash

FOLDER = Path(__file__).resolve().parent
CLOUD = GoProgram("bench/go", "./cloud")
REFERENCE = GoProgram("bench/go", "./reference")
PILEUS = Path(sys.executable).parent / "cloud-controller-manager"
STOP_LIMIT = 40.0
TAIL, WIDTH = 8, 200
"""Lines of a log that are reported when a process ends, and characters of each."""
TICKS = os.sysconf("SC_CLK_TCK")
MEBIBYTE = 1024.0


@dataclass(frozen=True, slots=True)
class Side:
    """A manager with its flags."""

    name: str
    title: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


TUNED = (
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
    "--concurrent-node-syncs=30",
    "--concurrent-service-syncs=30",
    "--concurrent-node-lifecycle-syncs=30",
)
GO_FLAGS = ("--authentication-skip-lookup=true", "--use-service-account-credentials=false")


def sides() -> dict[str, Side]:
    """Returns the managers by name."""
    reference = str(REFERENCE.binary())
    folders = [str(FOLDER / "provider"), str(FOLDER.parent.parent / "src")]
    for folder in folders:  # as in an installation
        compileall.compile_dir(folder, quiet=2)
    paths = os.pathsep.join(folders)
    return {
        "pileus": Side("pileus", "Pileus", (str(PILEUS),), {"PYTHONPATH": paths}),
        "go": Side("go", "Go tuned", (reference, *GO_FLAGS, *TUNED), {}),
        "shipped": Side("shipped", "Go as shipped", (reference, *GO_FLAGS), {}),
        "bare": Side("bare", "bare limit", (sys.executable, "-m", "tools.bench.bare"), {}),
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process has cost since it began."""

    cpu: float
    """Seconds, with those of child processes that have ended."""
    peak: float
    """MiB, the highest resident memory."""
    resident: float
    """MiB, now."""


def cost_of(pid: int) -> Cost:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    values = dict(line.split(":", 1) for line in status.splitlines())
    cpu = sum(map(int, fields[11:15])) / TICKS
    peak, resident = (int(values[name].split()[0]) / MEBIBYTE for name in ("VmHWM", "VmRSS"))
    return Cost(cpu, peak, resident)


class ProcessEnded(Exception):
    """A manager or the simulated cloud ended by itself."""

    def __init__(self, name: str, code: int, log: Sequence[str]) -> None:
        super().__init__(f"{name} ended with exit code {code}")
        self.log = tuple(log)
        """The end of its log."""


class Process:
    """A process that ends with this one, even if this one is killed."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                [*leash(), *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def check(self) -> None:
        """Raises ProcessEnded, with the end of its log, if the process has ended."""
        code = self.popen.poll()
        if code is not None:
            tail = self.log.read_text(errors="replace").splitlines()[-TAIL:]
            raise ProcessEnded(self.log.stem, code, [line[:WIDTH] for line in tail])

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(how)
        try:
            self.popen.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class SimulatedCloud:
    """The cloud, from the side that is free of charge."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def ask(self, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.endpoint}/admin/{path}"
        with urllib.request.urlopen(url, data=data, timeout=30) as answer:  # noqa: S310 -- loopback
            return json.load(answer)

    def add(self, names: Sequence[str], *, stopped: bool = False) -> None:
        self.ask("instances", {"instances": [machine(name, stopped=stopped) for name in names]})

    def config(self, file: Path, limits: Mapping[str, float]) -> Path:
        file.write_text(json.dumps({"endpoint": self.endpoint, "limits": dict(limits)}))
        return file


@contextlib.contextmanager
def simulated_cloud(folder: Path) -> Generator[SimulatedCloud]:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    log = folder / "cloud.log"
    process = Process((str(CLOUD.binary()), f"--listen={address}"), log)
    try:
        while not log.read_text():
            process.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.popen.wait(0.02)
        yield SimulatedCloud(f"http://{address}")
    finally:
        process.end(signal.SIGKILL)
