"""The API server of a simulation: embedded, without sockets; it can fail and lose history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Network, IPv6Network
from random import Random
from typing import Protocol

import msgspec

from pileus.app.migration import DEFAULT
from pileus.clock import Clock
from pileus.kube.transport import Request
from pileus.pki import signing_key
from pileus_lab.apiserver.allocation import Ranges
from pileus_lab.apiserver.api import Api, refusal
from pileus_lab.apiserver.call import Request as ApiRequest
from pileus_lab.apiserver.call import Response
from pileus_lab.apiserver.errors import Problem
from pileus_lab.apiserver.identity import authenticated
from pileus_lab.apiserver.in_process import MASTER, as_asked
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.apiserver.state import Options
from pileus_lab.apiserver.store import Entry, Key, Shelf
from pileus_lab.apiserver.tree import Obj, rows, text
from pileus_lab.simulation.clouds.second import SERVICE as SECOND_SERVICE
from pileus_lab.simulation.environment.steps import ObjectStep

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"
ATTACHMENTS = "volumeattachments.storage.k8s.io"
OF_VOLUMES = (CLAIMS, VOLUMES, ATTACHMENTS)
LOOKED_AT = ("nodes", "services", *OF_VOLUMES)
"""Resources whose every change is a step."""
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
NODES_PATH = "/api/v1/nodes"
LEASES = "leases.coordination.k8s.io"
LEASE, MIGRATION_LEASE = "cloud-controller-manager", DEFAULT.leader_name
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
OWN = "kubernetes"
"""The Service that every API server creates for itself."""
_USER = authenticated(MASTER)


_BOTH_FAMILIES = Ranges(networks=(IPv4Network("10.0.0.0/16"), IPv6Network("fd10::/108")))
_NO_STREAMING = Problem(
    422,
    "Invalid",
    "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList "
    "feature gate is enabled",
)


@dataclass(frozen=True, slots=True)
class Manners:
    """How API servers of different versions and sizes differ."""

    streams_lists: bool = True
    page_size: int = 0
    """Maximum number of objects in a page of a list; 0: as many as requested."""


class OpenWatch(Protocol):
    name: str
    """The client and the resource."""
    is_dead: bool
    """Whether nothing is sent any more, though the connection is open."""

    def cut(self) -> None: ...


class Cluster:
    """Each request is performed at once, and each change is reported as a step."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        told: Callable[[ObjectStep], None],
        manners: Manners,
    ) -> None:
        options = Options(token_key=_token_key(), ranges=_BOTH_FAMILIES)
        self._manners = manners
        self._api: Api = api_in_memory(clock=clock, random=random, options=options)
        self._told = told
        self._who = "setup"
        self._had_heard_of: Callable[[str], bool] = _everything
        self._known: dict[Entry, Obj] = {}
        self.is_down = False
        self.behind_until = 0.0
        """Until then, in loop time, watches send nothing: their server lags behind."""
        self.watches: dict[OpenWatch, None] = {}
        """Open watches, oldest first."""
        for name in LOOKED_AT:
            self._shelf(name).observers.append(self._observer(name))

    def respond(self, who: str, request: Request, had_heard_of: Callable[[str], bool]) -> Response:
        """Performs a request of a manager. `had_heard_of`: UIDs it had received when it sent it."""
        manners, query = self._manners, request.query
        if "sendInitialEvents" in query and not manners.streams_lists:
            return refusal(_NO_STREAMING)
        if "limit" in query and manners.page_size:
            request = replace(request, query={**query, "limit": str(manners.page_size)})
        self._had_heard_of = had_heard_of
        try:
            return self._respond(who, as_asked(request, _USER))
        finally:
            self._had_heard_of = _everything

    def act(
        self, who: str, method: str, path: str, body: object = None, kind: str = STRATEGIC
    ) -> Obj | None:
        """Performs a request of a user or a kubelet; returns None if the server refuses it."""
        response = self._respond(
            who,
            ApiRequest(
                method=method,
                path=path,
                headers={"content-type": kind} if method == "PATCH" else {},
                body=b"" if body is None else msgspec.json.encode(body),
                peer=_USER,
            ),
        )
        done = response.status < 300  # noqa: PLR2004 -- HTTP's own number
        return msgspec.json.decode(response.body, type=dict[str, object]) if done else None

    def objects(self, resource: str) -> list[Obj]:
        """All current objects, sorted by name; must not be changed."""
        shelf = self._shelf(resource)
        return [self._decoded(shelf.entries[key]) for key in shelf.keys]

    def services(self) -> list[Obj]:
        """All Services except the API server's own and that of a second cloud."""
        apart = {OWN, SECOND_SERVICE}
        found = self.objects("services")
        return [one for one in found if text(one, "metadata", "name") not in apart]

    def versions(self, resource: str) -> int:
        """Increases with each change of such an object."""
        return self._shelf(resource).touched

    def leader(self, lease: str = LEASE) -> str:
        """The holder of the lease; empty if none."""
        found = self._shelf(LEASES).entries.get(Key("kube-system", lease))
        return text(self._decoded(found), "spec", "holderIdentity") if found else ""

    def cluster_id(self) -> str:
        found = self.act("judge", "GET", "/api/v1/namespaces/kube-system")
        return text(found, "metadata", "uid")

    def forget(self) -> None:
        """Forgets the history of all objects."""
        store = self._api.state.store
        store.resume(store.version)

    def go_down(self) -> None:
        self.is_down = True
        self.forget()
        self.cut_watches()

    def cut_watches(self) -> None:
        for watch in tuple(self.watches):
            watch.cut()

    def come_back(self) -> None:
        self.is_down = False
        self.behind_until = 0.0

    def _respond(self, who: str, request: ApiRequest) -> Response:
        before, self._who = self._who, who
        try:
            return self._api.respond(request)
        finally:
            self._who = before

    def _decoded(self, entry: Entry) -> Obj:
        """The object of an entry; decoded once."""
        known = self._known.get(entry)
        if known is None:
            known = self._known[entry] = entry.decode()
        return known

    def _shelf(self, name: str) -> Shelf:
        return self._api.state.store.shelf(name)

    def _observer(self, resource: str) -> Callable[[Entry | None, Entry | None], None]:
        def observe(before: Entry | None, after: Entry | None, /) -> None:
            was = self._decoded(before) if before else None
            now = self._decoded(after) if after else None
            self._told(ObjectStep(self._who, resource, was, now, self._had_heard_of))

        return observe


def ready_status(node: Mapping[str, object]) -> str:
    for one in rows(node, "status", "conditions"):
        if text(one, "type") == "Ready":
            return text(one, "status")
    return ""


def _everything(_: str) -> bool:
    """A caller of the API server itself knows all objects."""
    return True


@cache
def _token_key() -> bytes:
    """Created once for all seeds, because that takes longer than a simulation."""
    return signing_key()[0]
