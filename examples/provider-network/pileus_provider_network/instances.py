"""Nodes are instances, found by provider ID, else by the UUID of the machine, else by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
)
from pileus_provider_network.client import Client
from pileus_provider_network.model import Machine

SCHEME = "network"
PREFIX = f"{SCHEME}://"


def provider_id(machine: str) -> str:
    return f"{PREFIX}{machine}"


def instance_id(node: NodeRef) -> str:
    """Returns the ID of the node's instance; empty if the node has no provider ID yet."""
    return node.provider_id.removeprefix(PREFIX)


@dataclass(frozen=True, slots=True)
class NetworkInstances:
    client: Client

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        del fresh  # nothing is cached
        machines = await self.client.machines() if nodes else ()
        return {node.name: _answer(node, machines) for node in nodes}


def _answer(node: NodeRef, machines: Sequence[Machine]) -> Found:
    machine = next((one for one in machines if _is(one, node)), None)
    if machine is None:
        return Absent(f"no instance with {_evidence(node)} among {len(machines)}")
    return Instance(
        id=InstanceId(machine.id),
        provider_id=provider_id(machine.id),
        type="n1.small",
        zone="zone-a",
        region="region",
        addresses=addresses_of(machine),
        state=InstanceState.RUNNING if machine.is_running else InstanceState.STOPPED,
    )


def addresses_of(machine: Machine) -> tuple[Address, ...]:
    return (Address(AddressType.INTERNAL_IP, machine.address),)


def _is(machine: Machine, node: NodeRef) -> bool:
    """A name comes again with another machine; an ID and a UUID do not."""
    if node.provider_id:
        return provider_id(machine.id) == node.provider_id
    if node.system_uuid:
        return machine.uuid == node.system_uuid
    return machine.name == node.name


def _evidence(node: NodeRef) -> str:
    if node.provider_id:
        return f"ID {instance_id(node)}"
    return f"UUID {node.system_uuid}" if node.system_uuid else f"name {node.name}"
