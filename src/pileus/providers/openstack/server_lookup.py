"""Finds the servers of nodes: by ID, else by name, many at once.

Up to `FEW` nodes are asked for one by one; for more of them all servers of the project are listed.

`Absent` needs proof, because a Node may be deleted for it:

- of a node with a provider ID: Nova answers 404 to a request for that ID. That an ID is missing
  from a list proves nothing: lists lack servers that are soft-deleted, of other projects, or in a
  cell that does not respond.
- of a node without one: no server has its name in a complete list of the project, every server in
  that list has a name, and none has the UUID that the node's firmware reports.
- of a node without one whose name a server has: the UUID that the node's firmware reports is the ID
  of a server that was deleted. The other server has replaced it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from pileus.cloud.errors import CloudError, NotFound, Rejected, Unauthorized, Unavailable
from pileus.cloud.model import Absent, Failure, NodeName, NodeRef
from pileus.dataclass import dataclass
from pileus.fix import quoted
from pileus.providers.openstack.api import each_of
from pileus.providers.openstack.nova import Nova, Server
from pileus.providers.openstack.provider_id import ProviderIds, system_uuid

K = TypeVar("K")
T = TypeVar("T")
Looked: TypeAlias = Server | Absent | Failure

FEW = 8
"""Up to so many nodes are asked for one by one: a page of servers costs Nova more than that."""
DELETED = "DELETED"
ACTIONS_POLICY = "os_compute_api:os-instance-actions:list"
"""Readers of the project have it, unless its operators changed that."""


@dataclass(frozen=True, slots=True)
class ServerLookup:
    nova: Nova
    ids: ProviderIds

    async def find(self, nodes: Sequence[NodeRef]) -> Mapping[NodeName, Looked]:
        """Returns the server of each node. Raises CloudError only if the whole lookup failed."""
        found: dict[NodeName, Looked] = {}
        by_id: dict[NodeName, str] = {}
        by_name: list[NodeRef] = []
        for node in nodes:
            try:
                server_id = self.ids.server_id(node)
            except Rejected as error:
                found[node.name] = Failure(error)
                continue
            if server_id:
                by_id[node.name] = server_id
            else:
                by_name.append(node)
        listed = await self.nova.servers() if len(by_id) + len(by_name) > FEW else None
        servers = await self._with_ids(sorted({*by_id.values()}), listed or ())
        found.update({name: servers[server_id] for name, server_id in by_id.items()})
        found.update(await self._with_names(by_name, listed))
        return found

    async def _with_ids(self, ids: Iterable[str], listed: Iterable[Server]) -> Mapping[str, Looked]:
        """Returns servers by their IDs. What the list does not have is asked for by its ID."""
        servers: dict[str, Looked] = {one.id: one for one in listed if one.is_known}
        missing = [server_id for server_id in ids if server_id not in servers]
        return {**servers, **await _each(missing, self._by_id)}

    async def _by_id(self, server_id: str) -> Looked:
        try:
            return _usable(await self.nova.server(server_id))
        except NotFound as error:
            return Absent(f"Nova has no server {server_id}: {error}")

    async def _with_names(
        self, nodes: Sequence[NodeRef], listed: Sequence[Server] | None
    ) -> Mapping[NodeName, Looked]:
        if not nodes:
            return {}
        try:
            names = (node.name for node in nodes)
            servers = await self.nova.servers_named(names) if listed is None else listed
            found = await self._unless_replaced(nodes, _matches(nodes, servers))
            missing = [node for node in nodes if node.name not in found]
            if not missing:
                return found
            everything = await self.nova.server_names() if listed is None else listed
        except CloudError as error:
            return {node.name: Failure(error) for node in nodes}
        by_name = {node.name: node for node in missing}

        async def confirmed(name: NodeName) -> Looked:
            return await self._confirmed(by_name[name], everything)

        return {**found, **await _each(by_name, confirmed)}

    async def _unless_replaced(
        self, nodes: Iterable[NodeRef], found: Mapping[NodeName, Looked]
    ) -> Mapping[NodeName, Looked]:
        """Returns what was found by name, but no server that has only the name of the node's.

        Asks Nova only about nodes whose UUID differs from the ID of the server.
        """
        doubtful: dict[NodeName, tuple[NodeRef, Server]] = {}
        for node in nodes:
            server = found.get(node.name)
            if isinstance(server, Server) and system_uuid(node) not in {"", server.id}:
                doubtful[node.name] = node, server

        async def checked(name: NodeName) -> Looked:
            return await self._own(*doubtful[name])

        return {**found, **await _each(doubtful, checked)}

    async def _own(self, node: NodeRef, namesake: Server) -> Looked:
        """Returns the server of a node whose UUID is not the ID of the server with its name.

        A UUID that was never the ID of a server is one that the hypervisor chose: then only the
        name is known of the node.
        """
        uuid = system_uuid(node)
        try:
            if not await self.nova.has_known(uuid):
                return namesake
        except Unauthorized as error:
            raise Unauthorized(
                f"the system UUID {uuid} of the node is not the ID of server {namesake.id}, which "
                "has its name, and Nova does not report whether it is that of a deleted server: "
                f"{error}. Fix: give the user a role with policy {ACTIONS_POLICY}"
            ) from error
        answer = await self._by_id(uuid)
        if isinstance(answer, Absent):
            return Absent(
                f'server {uuid} was deleted; server {namesake.id} has its name "{node.name}", but '
                "is not the machine of the node"
            )
        if isinstance(answer, Server) and answer.name.lower() != node.name.lower():
            raise Rejected(
                f'server {namesake.id} is named "{node.name}", but server {answer.id} '
                f"{quoted(answer.name)} has the system UUID of the node. Fix: rename both"
            )
        return answer

    async def _confirmed(self, node: NodeRef, everything: Sequence[Server]) -> Looked:
        """Returns `Absent` if no server of the project can be the node's.

        `everything` is a list without a filter, in which servers of a cell that does not respond
        have no name. Nova returns those only on its first page, and not if that page is full.
        """
        unnamed = sum(not server.is_known for server in everything)
        if unnamed:
            raise Unavailable(
                f"Nova did not return the names of {unnamed} servers: a cell does not respond"
            )
        if _matches([node], everything):
            raise Unavailable(f'server "{node.name}" was created or renamed during the lookup')
        uuid = system_uuid(node)
        answer = await self._by_id(uuid) if uuid else None
        if not isinstance(answer, Server):
            return Absent(
                f'Nova has no server named "{node.name}" among {len(everything)} servers of the '
                "project"
            )
        if answer.name.lower() == node.name.lower():
            return answer
        raise Rejected(
            f'no server is named "{node.name}", but server {answer.id} {quoted(answer.name)} has '
            "the system UUID of the node. Fix: openstack server set --name "
            f"{node.name} {answer.id}"
        )


async def _each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | Failure]:
    """Returns the answer for each key, or the failure of that key alone."""
    known = tuple(keys)
    answers = zip(known, await each_of(known, ask), strict=True)
    return {key: Failure(one) if isinstance(one, CloudError) else one for key, one in answers}


def _usable(server: Server) -> Looked:
    if server.status == DELETED:
        return Absent(f"Nova reports server {server.id} as deleted")
    if not server.is_known:
        return Failure(
            Unavailable(f"Nova does not know more of server {server.id}: its cell does not respond")
        )
    return server


def _matches(nodes: Iterable[NodeRef], servers: Iterable[Server]) -> dict[NodeName, Looked]:
    """Returns the nodes whose name a server has. An exact match wins over one in another case."""
    by_name: dict[str, list[Server]] = {}
    for server in servers:
        if server.is_known and server.status != DELETED:
            by_name.setdefault(server.name.lower(), []).append(server)
    found: dict[NodeName, Looked] = {}
    for node in nodes:
        similar = by_name.get(node.name.lower(), [])
        exact = [server for server in similar if server.name == node.name] or similar
        if len(exact) == 1:
            found[node.name] = exact[0]
        elif exact:
            found[node.name] = Failure(_ambiguous(node, exact))
    return found


def _ambiguous(node: NodeRef, servers: Sequence[Server]) -> CloudError:
    ids = ", ".join(sorted(server.id for server in servers))
    return Rejected(
        f'{len(servers)} servers are named "{node.name}": {ids}. Fix: rename all but one, or set '
        "spec.providerID of the node"
    )
