"""The manager's two replicas: real processes, ended in every way, and started again as pods are."""

import asyncio
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import QUICK_LEASE, Lab, Manager

FLAGS = (
    *QUICK_LEASE,
    "--cloud-provider=local",
    "--controller-start-interval=0s",
    "--node-monitor-period=1s",
    "--node-deletion-grace=2s",
    "--node-deletion-window=20s",
    "--node-deletion-max-fraction=0.4",
    "--service-drift-period=15s",
    "--service-orphans=delete",
)
"""Everything that takes minutes by default takes seconds here."""
FROZEN = 9.0
"""Seconds: longer than the lease."""
SAMPLE = 2.0
COUNT = 2


@dataclass
class Used:
    """What one process had used when it was looked at last."""

    api_writes: Counter[str] = field(default_factory=Counter[str])
    api_reads: int = 0
    cloud_calls: Counter[str] = field(default_factory=Counter[str])


@dataclass
class Replicas:
    cluster: ControlPlane
    config: Path
    folder: Path
    flags: tuple[str, ...] = FLAGS
    running: list[Manager] = field(default_factory=list[Manager])
    used: dict[int, Used] = field(default_factory=dict[int, Used])
    """By process id."""
    ended: Counter[str] = field(default_factory=Counter[str])
    """How often which end was met."""
    is_over: bool = False
    leader_pid: int = 0

    def start(self) -> None:
        for _ in range(COUNT):
            self.running.append(self._new())

    def _new(self) -> Manager:
        lab = Lab(self.folder / "lab")
        flags = (*self.flags, f"--cloud-config={self.config}")
        return Manager(self.cluster, lab, self.cluster.admin, *flags)

    async def run(self) -> None:
        """Look at them and start anew who has ended, until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE)
            for index, manager in enumerate(self.running):
                if manager.process.poll() is None:
                    await asyncio.to_thread(self._sample, manager)
                elif not self.is_over:
                    self.running[index] = self._new()

    def _sample(self, manager: Manager) -> None:
        code, text = manager.get("/metrics")
        if code != 200:
            return
        pid = manager.process.pid
        self.used[pid] = used_of(text)
        if float(_line(text, "leader_election_master_status{").split()[-1]):
            self.leader_pid = pid

    async def disturb(self, how: str) -> None:
        """One of `HOW`, done to who leads (if that is known)."""
        victim = self.leader() or self.running[0]
        await asyncio.to_thread(self._sample, victim)
        self.ended[how] += 1
        self.leader_pid = 0
        match how:
            case "SIGTERM":
                victim.process.send_signal(signal.SIGTERM)
            case "SIGKILL":
                victim.process.kill()
            case "SIGKILL both":
                for manager in self.running:
                    manager.process.kill()
            case _:
                victim.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(FROZEN)
                victim.process.send_signal(signal.SIGCONT)

    def leader(self) -> Manager | None:
        """Who led when it was looked at last, if it lives."""
        for manager in self.running:
            if manager.process.pid == self.leader_pid and manager.process.poll() is None:
                return manager
        return None

    def total(self) -> Used:
        whole = Used()
        for one in self.used.values():
            whole.api_writes += one.api_writes
            whole.api_reads += one.api_reads
            whole.cloud_calls += one.cloud_calls
        return whole

    def stop(self) -> None:
        self.is_over = True
        for manager in self.running:
            if manager.process.poll() is None:
                manager.process.send_signal(signal.SIGCONT)
                manager.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        for manager in self.running:
            try:
                manager.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                manager.process.kill()
                manager.process.wait()


HOW = ("SIGTERM", "SIGKILL", "SIGKILL both", "frozen beyond its lease")


def resident(pid: int) -> float:
    """MiB; 0 if there is no such process any more."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return int(_line(text, "VmRSS:").split()[1]) / 1024


def _line(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "0 0")


def used_of(text: str) -> Used:
    used = Used()
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.partition("} ")
        if name == "rest_client_requests_total":
            given = _labels(labels)
            if given["method"] == "GET":
                used.api_reads += int(float(value))
            else:
                used.api_writes[given["method"]] += int(float(value))
        elif name == "pileus_cloud_calls_total":
            given = _labels(labels)
            used.cloud_calls[f"{given['capability']}.{given['method']}"] += int(float(value))
    return used


def _labels(text: str) -> Mapping[str, str]:
    return dict(pair.replace('"', "").split("=", 1) for pair in text.split('",') if pair)
