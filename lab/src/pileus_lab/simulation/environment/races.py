"""Replaces or changes an object while a manager's request for it is in flight."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pileus_lab.apiserver.tree import Obj
from pileus_lab.simulation.clouds.deeds import AddMachine, DeleteMachine
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import MERGE, NODES_PATH, STRATEGIC, Cluster
from pileus_lab.simulation.environment.kubelets import Kubelets
from pileus_lab.simulation.environment.operators import DELETION, NEVER, WHO
from pileus_lab.simulation.environment.steps import Call
from pileus_lab.simulation.environment.users import MANAGE, NAMESPACES, People
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed

SERVICE_DEPTH = 3
"""Path segments between all namespaces and one Service."""
REQUESTS = (
    f"DELETE {NODES_PATH}/",
    f"PATCH {NODES_PATH}/",
    f"PATCH {NAMESPACES}/",
    f"PATCH {NAMESPACES}/",
    f"GET {NODES_PATH}/",
    f"GET {NAMESPACES}/",
)
"""What to wait for: a deed chooses one of these, and which occurrence."""
Touch = tuple[str, Obj]
"""A subresource, and the patch of it."""
READY: Obj = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
TO_NODES: tuple[Touch, ...] = (
    ("", {"metadata": {"annotations": {DELETION: NEVER}}}),
    ("/status", {"status": {"conditions": [READY]}}),
    ("", {"metadata": {"labels": {"example.com/touched": "yes"}}}),
    ("", {"metadata": {"annotations": {DELETION: None}}}),
)
TO_SERVICES: tuple[Touch, ...] = (
    ("", {"metadata": {"annotations": {MANAGE: "none"}}}),
    ("", {"spec": {"sessionAffinity": "ClientIP"}}),
    ("", {"metadata": {"labels": {"example.com/touched": "yes"}}}),
    ("", {"metadata": {"annotations": {MANAGE: None}}}),
)
MOST = 3
"""Maximum number of matching requests before one is hit."""


@dataclass(slots=True)
class _Awaited:
    request: str
    left: int
    choice: int
    strike: Callable[[str, int], None]
    """Called with the path of the object."""

    def comes(self, call: Call) -> bool:
        """Whether this request is the one; counts it otherwise."""
        if call.what.startswith(self.request) and _is_of_one(_path(call)):
            self.left -= 1
        return self.left == 0


class Replacing:
    """Guarantees that the object has changed when the chosen request arrives."""

    def __init__(
        self, cluster: Cluster, account: Account, people: People, kubelets: Kubelets
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._people = people
        self._kubelets = kubelets
        self._awaited: list[_Awaited] = []
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.OBJECT_AGAIN: lambda deed: self._lie_in_wait(deed, self._replace, MOST),
            DeedKind.OBJECT_TOUCHED: lambda deed: self._lie_in_wait(deed, self._touch, 1),
        }

    def end(self) -> None:
        """Cancels everything."""
        self._awaited.clear()

    def see(self, call: Call) -> None:
        """Called before a request of a manager is sent."""
        if self._awaited and not self._cluster.is_down:
            come = [one for one in self._awaited if one.comes(call)]
            self._awaited = [one for one in self._awaited if one.left]
            for one in come:
                one.strike(_path(call).removesuffix("/status"), one.choice)

    def _lie_in_wait(self, deed: Deed, strike: Callable[[str, int], None], most: int) -> None:
        rest, request = divmod(deed.choice, len(REQUESTS))
        choice, number = divmod(rest, most)
        self._awaited.append(_Awaited(REQUESTS[request], 1 + number, choice, strike))

    def _touch(self, path: str, choice: int) -> None:
        """What users and kubelets write to the object at that moment."""
        touches = TO_NODES if path.startswith(NODES_PATH) else TO_SERVICES
        below, body = touches[choice % len(touches)]
        kind = STRATEGIC if below else MERGE
        self._cluster.act(WHO, "PATCH", f"{path}{below}", body, kind)

    def _replace(self, path: str, choice: int) -> None:
        if path.startswith(NODES_PATH):
            self._register_again(path.rpartition("/")[2], choice)
        else:
            self._people.make_again(path, choice)

    def _register_again(self, name: str, choice: int) -> None:
        """On the same machine if it exists, or on a new one of its name."""
        machine = next((one for one in self._account.truth().machines if one.name == name), None)
        if machine is not None and choice % 2:
            self._account.do(WHO, DeleteMachine(machine.id))
            machine = None
        self._cluster.act(WHO, "DELETE", f"{NODES_PATH}/{name}")
        if machine is None:
            self._account.do(WHO, AddMachine(name))
        self._kubelets.look()


def _path(call: Call) -> str:
    return call.what.partition(" ")[2]


def _is_of_one(path: str) -> bool:
    """Whether it is the path of a node or a Service, or of its status."""
    if path.startswith(NODES_PATH):
        return True
    below = path.removesuffix("/status").removeprefix(f"{NAMESPACES}/").split("/")
    return len(below) == SERVICE_DEPTH and below[1] == "services"
