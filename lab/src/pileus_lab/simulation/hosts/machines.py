"""All machines with their disks, and the pods that write to them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pileus.cloud.model import InstanceState
from pileus.quantity import bytes_of
from pileus_lab.apiserver.tree import Obj, look, name_of, rows, text, texts, words
from pileus_lab.node_agents.volume_binder import grown, uid_of
from pileus_lab.simulation.clouds.truth import Machine
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import (
    ATTACHMENTS,
    CLAIMS,
    MERGE,
    NODES_PATH,
    VOLUMES,
    Cluster,
)
from pileus_lab.simulation.environment.steps import HostEvent, HostStep
from pileus_lab.simulation.environment.storage import OUT_OF_SERVICE, Access, Claims
from pileus_lab.simulation.event_loop import SimulationLoop
from pileus_lab.simulation.hosts.disk import GIB, STRANGE, Disk
from pileus_lab.simulation.hosts.host import Host, Use
from pileus_lab.simulation.hosts.kernel import Kernel, Mounted
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.managers import MOST_STEPS
from pileus_lab.simulation.schedule import Deed, Weather

WHO = "kubelets"
PERIOD = 2.0
TAINT: Obj = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
EPHEMERAL = 0.3
"""Fraction of worlds whose machines have a disk that shows no ID, where the cloud expects the
first volume."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the machines of a world work with."""

    cluster: Cluster
    account: Account
    claims: Claims
    loop: SimulationLoop
    weather: Weather
    chance: Random
    told: Callable[[HostStep], None]
    failed: Callable[[str, BaseException], None]


@dataclass(slots=True)
class Hosts:
    around: Around
    disks: dict[str, Disk] = field(default_factory=dict[str, Disk])
    """By volume."""
    running: dict[str, Host] = field(default_factory=dict[str, Host])
    """By ID of the machine."""
    written: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By UID of the claim: what its pods have written."""
    ephemeral: bool = False
    _ephemeral: dict[str, Disk] = field(default_factory=dict[str, Disk])
    _count: int = 0

    def __post_init__(self) -> None:
        self.ephemeral = self.around.chance.random() < EPHEMERAL

    @property
    def deeds(self) -> Mapping[DeedKind, Callable[[Deed], None]]:
        return {
            DeedKind.PLUGIN_CRASH: self._crash,
            DeedKind.PLUGIN_REPEAT: self._repeat,
            DeedKind.PLUGIN_SLOW: self._overload,
            DeedKind.HOST_HANGS: self._hang,
            DeedKind.HOST_OUT_OF_SERVICE: self._out_of_service,
            DeedKind.HOST_STALE_MOUNT: self._litter,
            DeedKind.VOLUME_WRITTEN: self._write_by_others,
        }

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(PERIOD)

    def end(self) -> None:
        """Kubelets and plugins work; users remove the taints they set, and others their data."""
        for disk in self.disks.values():
            disk.wipe()
        for host in self.running.values():
            host.hangs_until = host.repeats_until = host.cleared_at = 0.0
            host.kernel.overloaded_until = 0.0
            host.is_littered = False
            host.plugin.spare()
        for node in self.around.cluster.objects("nodes"):
            taints = rows(node, "spec", "taints")
            kept = [one for one in taints if text(one, "key") != OUT_OF_SERVICE]
            if len(kept) < len(taints):
                self._patch(node, {"spec": {"taints": kept}})

    def is_mounted(self, volume: str, machine: str) -> bool:
        """Whether a machine that runs has the volume mounted."""
        host, machines = self.running.get(machine), self.around.account.truth().machines
        runs = any(one.id == machine and one.state is InstanceState.RUNNING for one in machines)
        return runs and host is not None and host.kernel.is_mounted(volume)

    def mounted_on(self, volume: str) -> list[str]:
        return [id_ for id_ in self.running if self.is_mounted(volume, id_)]

    # -- machines -----------------------------------------------------------------------------

    def look(self) -> None:
        """Lets devices follow the cloud, kubelets do their work, and pods write."""
        machines = {
            one.id: one
            for one in self.around.account.truth().machines
            if one.state is InstanceState.RUNNING
        }
        for id_ in [each for each in self.running if each not in machines]:
            self.running.pop(id_).power_off()
        for id_, machine in machines.items():
            if id_ not in self.running:
                self.running[id_] = self._started(machine)
        attached = self._attached()
        for id_, host in self.running.items():
            host.kernel.plug(attached.get(id_, {}))
            if host.cleared_at <= self.around.loop.now():
                host.kernel.clear_mounts()
            if host.hangs_until <= self.around.loop.now() and not self.around.cluster.is_down:
                self._work(host)
            for use in host.uses.values():
                self._live(host, use)

    def _started(self, machine: Machine) -> Host:
        around = self.around
        blank = self._ephemeral.setdefault(machine.id, Disk("", 4 * GIB))
        kernel = Kernel(
            machine=machine.id,
            chance=Random(around.chance.getrandbits(32)),  # noqa: S311 -- no secret
            now=around.loop.now,
            weather=around.weather,
            told=around.told,
            unknown=blank if self.ephemeral else None,
        )
        name = machine.name
        return Host(name, kernel, kernel.chance, lambda error: around.failed(name, error))

    def _attached(self) -> Mapping[str, Mapping[str, Disk]]:
        found: dict[str, dict[str, Disk]] = {}
        volumes = self.around.account.truth().volumes
        for id_ in [each for each in self.disks if each not in volumes]:
            del self.disks[id_]
        for volume in volumes.values():
            disk = self.disks.setdefault(volume.id, Disk(volume.id, 0))
            if disk.size != volume.size_gib * GIB:
                disk.wipe()  # its end and its middle are elsewhere now
            disk.size = volume.size_gib * GIB
            for machine in volume.machines:
                found.setdefault(machine, {})[volume.id] = disk
        return found

    # -- kubelets -----------------------------------------------------------------------------

    def _work(self, host: Host) -> None:
        node = next(
            (one for one in self.around.cluster.objects("nodes") if name_of(one) == host.name), None
        )
        here = {uid for uid, name in self.around.claims.pods.items() if name == host.name}
        startable = self._startable(host.name, here) if node is not None else {}
        wanted = {*host.uses, *startable}
        if node is None or self._reported(node, wanted):
            for volume, use in startable.items():
                host.uses.setdefault(volume, use)
        for use in [*host.uses.values()]:
            if not use.is_idle:
                continue
            if use.claim not in here:
                use.task = self._task(host.stop(use), f"stop {use.volume}")
            elif use.access is not (access := self.around.claims.access(use.claim)):
                use.task = self._task(host.change(use, access), f"change {use.volume}")
            elif not use.is_running and use.volume in startable:
                use.device = startable[use.volume].device
                use.task = self._task(host.start(use), f"start {use.volume}")
            elif use.is_running:
                self._grow(host, use)

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(work, name=name)

    def _startable(self, name: str, here: set[str]) -> dict[str, Use]:
        """Volumes of pods on the node whose attachment is reported."""
        attached = {
            text(one, "spec", "source", "persistentVolumeName"): words(
                one, "status", "attachmentMetadata"
            )
            for one in self.around.cluster.objects(ATTACHMENTS)
            if text(one, "spec", "nodeName") == name and look(one, "status", "attached") is True
        }
        found: dict[str, Use] = {}
        for pv in self.around.cluster.objects(VOLUMES):
            claim, handle = text(pv, "spec", "claimRef", "uid"), _handle(pv)
            if claim in here and name_of(pv) in attached:
                device = attached[name_of(pv)].get("device", "")
                found[handle] = Use(handle, claim, device, self.around.claims.access(claim))
        return found

    def _reported(self, node: Obj, wanted: set[str]) -> bool:
        """Report the volumes that are or will be mounted. Returns whether that is known now."""
        names = [self.around.claims.in_use(volume) for volume in sorted(wanted)]
        if texts(node, "status", "volumesInUse") == names:
            return True
        return self._patch(node, {"status": {"volumesInUse": names or None}}, "/status")

    def _patch(self, node: Obj, body: Obj, below: str = "") -> bool:
        path = f"{NODES_PATH}/{name_of(node)}{below}"
        return self.around.cluster.act(WHO, "PATCH", path, body, MERGE) is not None

    def _grow(self, host: Host, use: Use) -> None:
        for claim in self.around.cluster.objects(CLAIMS):
            state = words(claim, "status", "allocatedResourceStatuses").get("storage")
            if uid_of(claim) == use.claim and state == "NodeResizePending":
                use.task = self._task(self._grown(host, use, claim), f"grow {use.volume}")

    async def _grown(self, host: Host, use: Use, claim: Obj) -> None:
        for pv in self.around.cluster.objects(VOLUMES):
            if _handle(pv) != use.volume:
                continue
            size = bytes_of(text(pv, "spec", "capacity", "storage"))
            if await host.expand(use, size) and not self.around.cluster.is_down:
                for patch in grown(claim, pv):
                    self.around.cluster.act(WHO, "PATCH", patch.path, patch.body, MERGE)

    # -- pods ---------------------------------------------------------------------------------

    def _live(self, host: Host, use: Use) -> None:
        """A pod that runs reads what its predecessors have written, and writes more."""
        if not use.is_running:
            return
        mount, expected = host.mount_of(use), self.written.setdefault(use.claim, [])
        if not use.is_checked:
            use.is_checked = True
            self._check(host, use, mount, expected)
        elif host.kernel.mount_at(use.target) is None:
            lost = "nothing at its path: the volume was unmounted while it runs"
            told = HostStep(host.kernel.machine, HostEvent.READ, use.volume, "", lost)
            self.around.told(told)
        if mount is not None and not mount.is_read_only:
            self._count += 1
            mount.device.disk.records.append(f"{use.claim} {self._count}")
            expected.append(mount.device.disk.records[-1])

    def _check(self, host: Host, use: Use, mount: Mounted | None, expected: list[str]) -> None:
        wrong, misused = "", ""
        if mount is not None:
            disk, found = mount.device.disk, mount.device.disk.records
            if found != expected:
                wrong = f"{len(found)} records on {disk.volume or 'a disk of the machine'}, not "
                wrong += f"the {len(expected)} of claim {use.claim}"
            staged = host.kernel.mount_at(use.staging)
            may_write = staged is not None and not staged.is_read_only
            if mount.is_read_only is (use.access is Access.WRITES):
                misused = "its mount is read-only" if mount.is_read_only else "it may write"
            elif use.access.is_for_readers and may_write:
                misused = "its node may write"
        machine, told = host.kernel.machine, self.around.told
        told(HostStep(machine, HostEvent.READ, use.volume, "", wrong))
        told(HostStep(machine, HostEvent.USE, use.volume, str(use.access), misused))

    # -- deeds --------------------------------------------------------------------------------

    def _chosen(self, deed: Deed) -> Host | None:
        """Mostly one that works on volumes."""
        hosts = [*self.running.values()]
        busy = [one for one in hosts if one.uses]
        return deed.one_of(busy or hosts)

    def _crash(self, deed: Deed) -> None:
        host = self._chosen(deed)
        if host is not None:
            step = int(MOST_STEPS ** (deed.choice % 256 / 512))
            host.plugin.strike_at_step(step, lambda: host.kill_plugin(min(deed.seconds, 10.0)))

    def _repeat(self, deed: Deed) -> None:
        host = self._chosen(deed)
        if host is not None:
            host.repeats_until = self.around.loop.now() + deed.seconds

    def _overload(self, deed: Deed) -> None:
        """The pods there end, and start again before their volumes are unmounted."""
        host = self._chosen(deed)
        if host is None:
            return
        self._repeat(deed)
        host.kernel.overloaded_until = host.repeats_until
        pods = self.around.claims.pods
        ended = [one.claim for one in host.uses.values() if pods.get(one.claim) == host.name]
        for claim in ended:
            del pods[claim]
            self.around.loop.call_later(2 * PERIOD, self.around.claims.resume, claim, host.name)

    def _litter(self, deed: Deed) -> None:
        """At the staging path of a volume in use, or of the next one."""
        host = self._chosen(deed)
        if host is None:
            return
        host.cleared_at = self.around.loop.now() + deed.seconds
        stopped = [each for each in host.uses.values() if not each.is_running]
        if stopped and deed.choice // 7 % 2:
            host.kernel.leave_mount(stopped[0].staging)
        else:
            host.is_littered = True

    def _write_by_others(self, deed: Deed) -> None:
        """With another tool, while no kubelet has anything to do with the volume; for a while."""
        in_use = {volume for host in self.running.values() for volume in host.uses}
        unused = [
            disk
            for volume, disk in self.disks.items()
            if volume not in in_use and disk.is_empty and not disk.records
        ]
        disk = deed.one_of(unused)
        if disk is not None:
            disk.write_by_others(STRANGE[deed.choice // 7 % len(STRANGE)])
            self.around.loop.call_later(deed.seconds, disk.wipe)

    def _hang(self, deed: Deed) -> None:
        host = self._chosen(deed)
        if host is not None:
            host.hangs_until = self.around.loop.now() + deed.seconds

    def _out_of_service(self, deed: Deed) -> None:
        """Perhaps of a machine that is on, and whose kubelet hangs."""
        host = self._chosen(deed)
        if host is not None and deed.choice // 7 % 2:
            host.hangs_until = self.around.loop.now() + deed.seconds
        for node in self.around.cluster.objects("nodes"):
            if host is not None and name_of(node) == host.name:
                self._patch(node, {"spec": {"taints": [*rows(node, "spec", "taints"), TAINT]}})


def _handle(pv: Obj) -> str:
    return text(pv, "spec", "csi", "volumeHandle")
