"""Machines with a list of SSH keys each, and providers for them in both shapes."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.interface import SshKeys
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef, SshKey
from tests.contract.ported import Quiet
from tests.unit.classic.fakes import V1, Access, Recorder, View, adapted

Machines = dict[str, dict[SshKey, str]]
"""The keys of each machine, and whose they are; empty: someone's."""


class Keyring:
    def __init__(self, machines: Machines) -> None:
        self.machines = machines

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        return {node.name: self.of(cluster, node.name) for node in nodes}

    def of(self, cluster: str, name: str) -> NodeKeys | Failure:
        if name not in self.machines:
            return Failure(NotFound(name))
        ours = frozenset(key for key, owner in self.machines[name].items() if owner == cluster)
        return NodeKeys(ours, frozenset(self.machines[name]) - ours)

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for node in nodes:
            if node.name in self.machines:
                self.put(cluster, keys, self.machines[node.name])
        return self.absent(nodes)

    def put(self, cluster: str, keys: Sequence[SshKey], ring: dict[SshKey, str]) -> None:
        for key in keys:
            ring.setdefault(key, cluster)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for node in nodes:
            ring = self.machines.get(node.name, {})
            for key in keys:
                if self.may_remove(ring.get(key), cluster):
                    ring.pop(key, None)
        return self.absent(nodes)

    def may_remove(self, owner: str | None, cluster: str) -> bool:
        return owner == cluster

    def absent(self, nodes: Sequence[NodeRef]) -> Mapping[NodeName, CloudError]:
        return {node.name: NotFound(node.name) for node in nodes if node.name not in self.machines}


@dataclass
class KeyringHarness:
    provider: type[Keyring] = Keyring
    machines: Machines = field(default_factory=dict)
    can_tell: bool = True

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[SshKeys]:
        yield self.provider(self.machines)

    def add_machine(self, name: str) -> NodeRef:
        self.machines[name] = {}
        return NodeRef(name=NodeName(name))

    def add_by_hand(self, key: SshKey) -> None:
        for ring in self.machines.values():
            ring[key] = ""

    def accepted(self, name: str) -> frozenset[SshKey]:
        return frozenset(self.machines[name])


class ClassicKeyring(V1):
    def __init__(self, machines: Machines) -> None:
        super().__init__(Recorder())
        self.machines = machines

    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        for ring in self.machines.values():
            ring[SshKey(user, key_data.decode())] = ""


@dataclass
class ClassicKeyringHarness(KeyringHarness):
    can_tell: bool = False

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[SshKeys]:
        cloud = adapted(Quiet(v1=ClassicKeyring(self.machines)))
        assert cloud.leading
        assert cloud.ssh_keys
        async with cloud.leading(Access(View())):
            yield cloud.ssh_keys
