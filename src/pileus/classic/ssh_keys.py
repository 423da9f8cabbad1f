"""The SSH keys of a ported provider: it can add one to all instances, and nothing else."""
# ruff: noqa: ARG002 -- it knows neither marks nor single nodes

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.classic.calls import Calls
from pileus.classic.errors import translated
from pileus.classic.interface import Instances
from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef, SshKey


@dataclass(frozen=True, slots=True)
class ClassicSshKeys:
    inner: Instances
    calls: Calls

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        raise Unsupported("a ported provider cannot tell which SSH keys its instances have")

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
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
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        raise Unsupported("a ported provider cannot remove SSH keys; remove them by hand")
