"""One machine with a kubelet and the node plugin: its pods, and the plugin's requests."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any

from google.protobuf.message import Message

from pileus.csi.errors import code_of
from pileus.csi.node import Node, NodeFacts
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.parameters import DEVICE
from pileus_lab.simulation.environment.storage import Access
from pileus_lab.simulation.event_loop import PROCESS, Process
from pileus_lab.simulation.hosts.kernel import FOR_READERS, KERNEL, Kernel, Mounted

KUBELET = "/var/lib/kubelet"
PATIENT, IMPATIENT = 40.0, 0.3
"""Seconds that a kubelet waits for an answer."""
Method = Callable[[Any], Awaitable[object]]
Modes = csi.VolumeCapability.AccessMode
EARLY = 0.5
"""Fraction of pods that start before the volume is unmounted that their predecessor used in another
way."""


class CallFailed(Exception):
    """The plugin refused, failed, or did not answer in time."""


@dataclass(slots=True)
class Use:
    """A volume that the kubelet has begun to mount and not yet unmounted."""

    volume: str
    claim: str
    """UID of the claim."""
    device: str
    """As the attachment names it."""
    access: Access = Access.WRITES
    """As its mounts are requested."""
    is_running: bool = False
    """Whether its pod runs."""
    is_checked: bool = False
    """Whether the pod has read its data."""
    trouble: str = ""
    """Why the pod does not run."""
    task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def staging(self) -> str:
        return f"{KUBELET}/plugins/{self.volume}/globalmount"

    @property
    def target(self) -> str:
        return f"{KUBELET}/pods/{self.claim}/mount"


@dataclass(slots=True)
class Host:
    """From one start of the machine to its end."""

    name: str
    kernel: Kernel
    chance: Random
    failed: Callable[[BaseException], None]
    """Called with errors that are bugs of the plugin."""
    uses: dict[str, Use] = field(default_factory=dict[str, Use])
    """By volume."""
    hangs_until: float = 0.0
    repeats_until: float = 0.0
    is_littered: bool = False
    """Whether a mount is left behind at the next staging path, between stage and publish."""
    cleared_at: float = 0.0
    """When such mounts are removed."""
    plugin: Process = field(init=False)
    node: Node = field(init=False)
    _down_until: float = 0.0
    _requests: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    def __post_init__(self) -> None:
        self._start_plugin()

    def power_off(self) -> None:
        self.kernel.is_off = True
        self.kill_plugin()
        for use in self.uses.values():
            if use.task is not None:
                use.task.cancel()
        self.uses.clear()

    def kill_plugin(self, pause: float = 0.0) -> None:
        """Kill the plugin with its commands. It starts again some seconds later."""
        self.plugin.is_dead = True
        for task in [*self._requests]:
            task.cancel()
        self._requests.clear()
        self._down_until = self.kernel.now() + pause
        self._start_plugin()

    def _start_plugin(self) -> None:
        self.plugin, self.node = Process(f"plugin of {self.name}"), Node(self._facts)

    async def _facts(self) -> NodeFacts:
        return NodeFacts(id=self.kernel.machine, topology={})

    # -- what a kubelet does ------------------------------------------------------------------

    async def start(self, use: Use) -> None:
        """Mount the volume for its pod. Sets `trouble` if that fails."""
        context = {DEVICE: use.device} if use.device else {}
        stage = csi.NodeStageVolumeRequest(
            volume_id=use.volume,
            staging_target_path=use.staging,
            volume_capability=_capability(use.access),
            publish_context=context,
        )
        publish = csi.NodePublishVolumeRequest(
            volume_id=use.volume,
            staging_target_path=use.staging,
            target_path=use.target,
            volume_capability=_capability(use.access),
            publish_context=context,
            readonly=use.access is Access.READS,
        )
        if await self._tried(use, self.node.node_stage_volume, stage):
            if self.is_littered:
                self.is_littered = False
                self.kernel.leave_mount(use.staging)
            use.is_running = await self._tried(use, self.node.node_publish_volume, publish)

    async def stop(self, use: Use) -> None:
        use.is_running = False
        unpublish = csi.NodeUnpublishVolumeRequest(volume_id=use.volume, target_path=use.target)
        unstage = csi.NodeUnstageVolumeRequest(
            volume_id=use.volume, staging_target_path=use.staging
        )
        is_done = await self._tried(use, self.node.node_unpublish_volume, unpublish)
        if is_done and await self._tried(use, self.node.node_unstage_volume, unstage):
            self.uses.pop(use.volume, None)

    async def change(self, use: Use, access: Access) -> None:
        """The next pod uses the volume in another way; perhaps before it is unmounted.

        That has to be refused as long as a mount of the former pod is there.
        """
        use.is_running = use.is_checked = False
        if self.chance.random() < EARLY:
            before, use.access = use.access, access
            await self.start(use)
            use.access = access if use.is_running else before
        if not use.is_running:
            await self.stop(use)

    async def expand(self, use: Use, size: int) -> bool:
        """Grow the filesystem. Returns whether it has that size now."""
        request = csi.NodeExpandVolumeRequest(
            volume_id=use.volume,
            volume_path=use.target,
            capacity_range=csi.CapacityRange(required_bytes=size),
        )
        return await self._tried(use, self.node.node_expand_volume, request)

    def mount_of(self, use: Use) -> Mounted | None:
        """The mount that the pod uses; None: its reads and writes fail."""
        mount = self.kernel.mount_at(use.target)
        return None if mount is None or mount.device.is_gone else mount

    async def _tried(self, use: Use, method: Method, request: Message) -> bool:
        try:
            await self._call(use, method, request)
        except CallFailed as error:
            use.trouble = str(error)
            return False
        use.trouble = ""
        return True

    async def _call(self, use: Use, method: Method, request: Message) -> None:
        if self.kernel.now() < self._down_until:
            raise CallFailed("the plugin does not run")
        context = copy_context()
        context.run(PROCESS.set, self.plugin)
        context.run(KERNEL.set, self.kernel)
        context.run(FOR_READERS.set, use.access.is_for_readers)
        task = asyncio.get_running_loop().create_task(_answered(method, request), context=context)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        is_impatient = self.kernel.now() < self.repeats_until
        done, _ = await asyncio.wait([task], timeout=IMPATIENT if is_impatient else PATIENT)
        if not done:
            if not is_impatient:
                task.cancel()
            raise CallFailed("no answer")
        if task.cancelled():
            raise CallFailed("the plugin was killed")
        error = task.result()
        if error is not None:
            if code_of(error) is None:
                self.failed(error)
            raise CallFailed(f"{type(error).__name__}: {error}")


def _capability(access: Access) -> csi.VolumeCapability:
    by_mode, by_option = access is Access.READS_BY_MODE, access is Access.READS_BY_OPTION
    flags = ["ro"] if by_option else []
    mode = Modes.SINGLE_NODE_READER_ONLY if by_mode else Modes.SINGLE_NODE_WRITER
    return csi.VolumeCapability(
        mount=csi.VolumeCapability.MountVolume(fs_type="ext4", mount_flags=flags),
        access_mode=Modes(mode=mode),
    )


async def _answered(method: Method, request: Message) -> Exception | None:
    """Returns the error of a request; None: it succeeded."""
    try:
        await method(request)
    except Exception as error:  # noqa: BLE001 -- judged by the caller, as the server does
        return error
    return None
