"""Lookups of nodes and SSH keys of a ported provider, in the order of the Go framework.

| lookup | InstancesV2 | Instances (v1) and Zones |
|---|---|---|
| `fresh=False` (cloud-node) | metadata | ID, addresses, type, zone; each by ID, then by name |
| `fresh=True` (cloud-node-lifecycle) | exists, then shut down | ID, exists, then shut down |

So a fresh answer has no metadata but the provider ID, and one that need not be fresh has no state.
A node is `Absent` only where Go would delete it: if the provider answers that it does not exist, or
raises `InstanceNotFound` when a v1 provider is asked for the ID.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from pileus.classic.calls import Calls
from pileus.classic.errors import InstanceNotFound, Unimplemented, translated
from pileus.classic.interface import (
    Instances,
    InstancesV2,
    Interface,
    Zone,
)
from pileus.cloud.errors import CloudError, NotFound, Unavailable, Unsupported
from pileus.cloud.model import (
    Absent,
    Address,
    Asked,
    Failure,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeKeys,
    NodeName,
    NodeRef,
    SshKey,
)
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.runtime.cluster_access import ClusterView

T = TypeVar("T")
_NOT_FOUND = "instance_not_found"


@dataclass(frozen=True, slots=True)
class ClassicInstances:
    provider: Interface
    view: ClusterView
    calls: Calls

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        """Leaves out nodes that no longer exist. What fails for one node fails for no other."""
        known = {ref.name: node for ref in nodes if (node := self.view.node(ref.name))}
        look_up = self._state if fresh else self._metadata
        async with asyncio.TaskGroup() as group:
            tasks = {n: group.create_task(_outcome(look_up(node))) for n, node in known.items()}
        found = {name: task.result() for name, task in tasks.items()}
        return {name: answer for name, answer in found.items() if answer is not None}

    async def _metadata(self, node: Node) -> Found | None:
        v2 = self.provider.instances_v2()
        return await (self._metadata_v1(node) if v2 is None else self._metadata_v2(v2, node))

    async def _state(self, node: Node) -> Found:
        v2, count = self.provider.instances_v2(), _Count()
        try:
            if v2 is None:
                return await self._state_v1(node, count)
            return await self._state_v2(v2, node, count)
        except Exception as error:  # noqa: BLE001 -- a ported provider raises what it likes
            failure = translated(error)
            failure.asked = count.asked
            return Failure(failure)

    async def _metadata_v2(self, v2: InstancesV2, node: Node) -> Found | None:
        metadata = await self.calls.make(v2.instance_metadata, node)
        if metadata is None:
            return None
        provider_id = metadata.provider_id or _provider_id(node)
        if not provider_id:
            raise Unavailable("neither the metadata of the provider nor the node has a provider ID")
        return Instance(
            id=_instance_id(provider_id),
            provider_id=provider_id,
            type=metadata.instance_type,
            zone=metadata.zone,
            region=metadata.region,
            addresses=_addresses(metadata.node_addresses),
            labels=dict(metadata.additional_labels),
            state=InstanceState.UNKNOWN,
        )

    async def _metadata_v1(self, node: Node) -> Found:
        name, v1, make = node.metadata.name, self._v1(), self.calls.make
        try:
            id_ = await self._provider_id_v1(node)
        except Unimplemented:
            id_ = ""
        addresses = await self._either(
            "node addresses",
            lambda: make(v1.node_addresses_by_provider_id, id_),
            lambda: make(v1.node_addresses, name),
        )
        type_ = await self._either(
            "the instance type",
            lambda: make(v1.instance_type_by_provider_id, id_),
            lambda: make(v1.instance_type, name),
        )
        zone = await self._zone(name, id_)
        return Instance(
            id=_instance_id(id_),
            provider_id=id_,
            type=type_,
            zone=zone.failure_domain,
            region=zone.region,
            addresses=_addresses(addresses),
            state=InstanceState.UNKNOWN,
        )

    async def _zone(self, name: str, id_: str) -> Zone:
        zones = self.provider.zones()
        if zones is None:
            return Zone()
        return await self._either(
            "the zone",
            lambda: self.calls.make(zones.get_zone_by_provider_id, id_),
            lambda: self.calls.make(zones.get_zone_by_node_name, name),
        )

    async def _either(
        self,
        what: str,
        by_id: Callable[[], Awaitable[T]],
        by_name: Callable[[], Awaitable[T]],
    ) -> T:
        """Ask by ID, even an empty one, and by name if that fails."""
        try:
            return await by_id()
        except Exception as first:  # noqa: BLE001 -- a ported provider raises what it likes
            try:
                return await by_name()
            except Exception as second:
                raise Unavailable(f"{what}: by provider ID: {first}; by name: {second}") from second

    async def _state_v2(self, v2: InstancesV2, node: Node, count: "_Count") -> Found:
        with count.calling("instance_exists"):
            exists = _verdict(await self.calls.make(v2.instance_exists, node), "instance_exists")
            if not exists:
                count.result = _NOT_FOUND
        if not exists:
            return Absent(f"instance_exists({node.metadata.name}) returned False", count.asked)
        with count.calling("instance_shutdown"):
            is_stopped = _verdict(
                await self.calls.make(v2.instance_shutdown, node), "instance_shutdown"
            )
        return _existing(_provider_id(node), count.asked, is_stopped=is_stopped)

    async def _state_v1(self, node: Node, count: "_Count") -> Found:
        v1, make = self._v1(), self.calls.make
        id_ = _provider_id(node)
        if not id_:
            try:
                with count.calling("instance_metadata"):
                    id_ = await self._provider_id_v1(node)
            except InstanceNotFound as error:
                evidence = f"instance_id({node.metadata.name}) raised: {error}"
                return Absent(evidence, count.asked)
        method = "instance_exists_by_provider_id"
        with count.calling("instance_exists"):
            exists = _verdict(await make(v1.instance_exists_by_provider_id, id_), method)
            if not exists:
                count.result = _NOT_FOUND
        if not exists:
            return Absent(f"{method}({id_}) returned False", count.asked)
        method, is_stopped = "instance_shutdown_by_provider_id", False
        with suppress(Unimplemented), count.calling("instance_shutdown"):
            is_stopped = _verdict(await make(v1.instance_shutdown_by_provider_id, id_), method)
        return _existing(id_, count.asked, is_stopped=is_stopped)

    def _v1(self) -> Instances:
        v1 = self.provider.instances()
        if v1 is None:
            raise Unavailable("failed to get instances from cloud provider")
        return v1

    async def _provider_id_v1(self, node: Node) -> str:
        known = _provider_id(node)
        return known or await get_instance_provider_id(
            self.provider, node.metadata.name, calls=self.calls
        )


@dataclass(frozen=True, slots=True)
class ClassicSshKeys:
    """A ported provider can add a key to all instances, and nothing else."""

    inner: Instances
    calls: Calls

    async def list_keys(
        self,
        cluster: str,  # noqa: ARG002 -- cannot be known
        nodes: Sequence[NodeRef],  # noqa: ARG002
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        raise Unsupported("a ported provider cannot list the SSH keys of its instances")

    async def add(
        self,
        cluster: str,  # noqa: ARG002 -- keys of ported providers have no marks
        keys: Sequence[SshKey],
        nodes: Sequence[NodeRef],  # noqa: ARG002 -- all instances get them
    ) -> Mapping[NodeName, CloudError]:
        add = self.inner.add_ssh_key_to_all_instances
        try:
            for key in keys:
                name = f"SSH key {key.fingerprint}"
                await self.calls.make_alone(name, add, key.user, key.public_key.encode())
        except Exception as error:
            raise translated(error) from error
        return {}

    async def remove(
        self,
        cluster: str,  # noqa: ARG002 -- cannot be done
        keys: Sequence[SshKey],  # noqa: ARG002
        nodes: Sequence[NodeRef],  # noqa: ARG002
    ) -> Mapping[NodeName, CloudError]:
        raise Unsupported("a ported provider cannot remove SSH keys: remove them manually")


async def get_instance_provider_id(
    cloud: Interface, node_name: str, *, calls: Calls | None = None
) -> str:
    """Returns `<provider name>://<instance ID>` of a node, for a v1 provider.

    Raises `Unimplemented` and `InstanceNotFound` as they are; others as `Unavailable`.
    """
    instances = cloud.instances()
    if instances is None:
        raise Unavailable("failed to get instances from cloud provider")
    try:
        instance_id = await (calls or Calls()).make(instances.instance_id, node_name)
    except (Unimplemented, InstanceNotFound):
        raise
    except Exception as error:
        raise Unavailable(f"failed to get instance ID from cloud provider: {error}") from error
    return f"{cloud.provider_name()}://{instance_id}"


class _Count:
    """The calls about one node, under the names of the Go framework."""

    def __init__(self) -> None:
        self.asked: Asked = ()
        self.result = ""

    @contextmanager
    def calling(self, operation: str) -> Generator[None]:
        """Count the block as a call. Its result is `result`, or what it raises."""
        self.result = "success"
        try:
            yield
        except Unimplemented:
            self.result = "not_implemented"
            raise
        except (InstanceNotFound, NotFound):
            self.result = _NOT_FOUND
            raise
        except Exception:
            self.result = "error"
            raise
        finally:
            self.asked = (*self.asked, (operation, self.result))


async def _outcome(look_up: Awaitable[Found | None]) -> Found | None:
    try:
        return await look_up
    except Exception as error:  # noqa: BLE001 -- a ported provider raises what it likes
        return Failure(translated(error))


def _verdict(answer: object, method: str) -> bool:
    """Accepts only True and False: a forgotten `return` must not delete a node."""
    if not isinstance(answer, bool):
        raise Unavailable(f"{method} answered {answer!r} instead of True or False")
    return answer


def _existing(provider_id: str, asked: Asked, *, is_stopped: bool) -> Instance:
    state = InstanceState.STOPPED if is_stopped else InstanceState.RUNNING
    return Instance(id=_instance_id(provider_id), provider_id=provider_id, state=state, asked=asked)


def _provider_id(node: Node) -> str:
    return (node.spec.provider_id if node.spec else None) or ""


def _instance_id(provider_id: str) -> InstanceId:
    """Returns what follows the last slash of a provider ID."""
    return InstanceId(provider_id.rpartition("/")[2])


def _addresses(addresses: Sequence[NodeAddress]) -> tuple[Address, ...]:
    """Keeps addresses of any type. The node controller drops types that Kubernetes lacks."""
    return tuple(Address(item.type, item.address) for item in addresses)
