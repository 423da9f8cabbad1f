"""Operators of the cluster: they change nodes, SSH keys and the lease."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

from pileus.clock import Clock
from pileus.controllers.service.annotations import WRITTEN
from pileus_lab.apiserver.tree import Obj, rows, text, words
from pileus_lab.node_agents.node import Host, alive_status, new_node
from pileus_lab.simulation.clouds.deeds import AddKey, AddMachine, DeleteMachine, DisownBalancer
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import LEASE, LEASES_PATH, MERGE, NODES_PATH, Cluster
from pileus_lab.simulation.environment.kubelets import HOW
from pileus_lab.simulation.environment.users import ADOPT, TEAM, service_path
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed
from pileus_lab.simulation.setup import KEYS

WHO = "operators"
LEAVING = "ToBeDeletedByClusterAutoscaler"
ZONE = "topology.kubernetes.io/zone"
MISTAKEN = "192.0.2.8"
"""An address that operators give to a node, and no machine has."""
KEYS_NAMESPACE, KEYS_NAME = KEYS.split("/")
CONFIG_MAPS = f"/api/v1/namespaces/{KEYS_NAMESPACE}/configmaps"
USERS = ("admin", "backup", "root")
ALGORITHM, NONE = "ssh-ed25519", "none"
KEYS_KNOWN = 12
"""Number of different keys in a world."""
NAMED = 0.7
"""Fraction of the balancers of another manager that their Services name."""
DELETION, NEVER = "pileus.dev/deletion", "never"
"""The annotation that forbids the deletion of a node."""
SERVICES_PATH = "/api/v1/namespaces/default/services"
FLEET = 6
"""Minimum number of Services that are created at once; one more than may always be lost at once."""
MOST_BALANCERS = 25
"""With more Services than this no release is created, so that no quota is exceeded."""
FLEET_LIVES = 30.0
"""Minimum seconds until they are deleted."""
OTHER_HOLDER = "another-holder"
"""The holder that a user writes into the lease."""


class Operators:
    def __init__(
        self,
        cluster: Cluster,
        account: Account,
        clock: Clock,
        later: Callable[[float, Callable[[], None]], object],
        meddled: Callable[[], None],
        *,
        syncs_labels: bool,
    ) -> None:
        self._cluster = cluster
        self._account = account
        self._clock = clock
        self._later = later
        self._meddled = meddled
        self._syncs_labels = syncs_labels
        self._named = 0
        self._is_over = False
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.NODE_LEAVING: self._leave,
            DeedKind.NODE_EDIT: self._edit_node,
            DeedKind.NODE_EARLY: self._register_early,
            DeedKind.NODE_AGAIN: self._register_again,
            DeedKind.NODE_DELETE_ALL: self._delete_all,
            DeedKind.NODE_VETO: self._veto,
            DeedKind.SERVICE_MANY: self._create_many,
            DeedKind.KEYS_EDIT: self._edit_keys,
            DeedKind.KEYS_FOREIGN: self._foreign_key,
            DeedKind.LEASE_DELETE: self._delete_lease,
            DeedKind.LEASE_EDIT: self._edit_lease,
        }

    def furnish(self) -> None:
        """What exists before the first manager starts."""
        self._cluster.act(WHO, "POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
        self._write_keys({"admin": public_key(0)})

    def hand_over(self, chance: Random) -> Mapping[str, str]:
        """Makes all balancers those of another manager: cloud and Services have no marks of ours.

        A cloud that does not find its balancer by itself needs users who name it. Returns the
        balancers by the UID of their Service.
        """
        ours, before = self._cluster.cluster_id(), self._account.truth().balancers
        for key in sorted(before):
            if before[key].is_of(ours):
                self._account.do(WHO, DisownBalancer(key))
        after = self._account.truth().balancers
        left = {
            one.owner.uid: key
            for key, one in before.items()
            if one.owner and one.is_of(ours) and key in after and after[key].owner is None
        }
        for service in self._cluster.services():
            uid, path = text(service, "metadata", "uid"), service_path(service)
            if uid in left:
                named = {ADOPT: left[uid]} if chance.random() < NAMED else {}
                body = {"metadata": {"annotations": {WRITTEN: None, **named}}}
                self._cluster.act(WHO, "PATCH", path, body, MERGE)
                status = {"status": {"conditions": None}}
                self._cluster.act(WHO, "PATCH", f"{path}/status", status, MERGE)
        return left

    def end(self) -> None:
        """Cancels everything that was planned."""
        self._is_over = True

    def _veto(self, deed: Deed) -> None:
        node = self._node(deed)
        if node is not None:
            word = words(node, "metadata", "annotations").get(DELETION)
            given = None if word == NEVER else NEVER
            self._patch(node, {"metadata": {"annotations": {DELETION: given}}})

    def _create_many(self, deed: Deed) -> None:
        """A release of many Services, which is deleted by force, including finalizers."""
        if len(self._account.truth().balancers) > MOST_BALANCERS:
            return
        self._named += 1
        number = FLEET + deed.choice % FLEET
        for one in range(number):
            spec = {"type": "LoadBalancer", "ports": [{"port": 80 + one}]}
            body = {"metadata": {"name": f"fleet-{self._named}-{one}"}, "spec": spec}
            self._cluster.act(WHO, "POST", SERVICES_PATH, body)
        self._later(FLEET_LIVES + deed.seconds, self._delete_fleet)

    def _delete_fleet(self) -> None:
        if self._is_over or self._cluster.is_down:
            return
        for service in self._cluster.services():
            if text(service, "metadata", "name").startswith("fleet-"):
                path = f"{SERVICES_PATH}/{text(service, 'metadata', 'name')}"
                self._cluster.act(WHO, "DELETE", path)
                self._cluster.act(WHO, "PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    def _leave(self, deed: Deed) -> None:
        node = self._node(deed)
        if node is None:
            return
        taints = rows(node, "spec", "taints")
        kept = [one for one in taints if text(one, "key") != LEAVING]
        if len(kept) == len(taints):
            kept.append({"key": LEAVING, "value": "1", "effect": "NoSchedule"})
        self._patch(node, {"spec": {"taints": kept}})

    def _edit_node(self, deed: Deed) -> None:
        node = self._node(deed)
        if node is None:
            return
        if self._syncs_labels and deed.choice // 7 % 2:
            self._patch(node, {"metadata": {"labels": {ZONE: "elsewhere"}}})
        else:
            addresses = [{"type": "InternalIP", "address": MISTAKEN}]
            self._patch(node, {"status": {"addresses": addresses}}, "/status")

    def _register_early(self, deed: Deed) -> None:
        """The cloud lists its machine later; or never, if it belongs to no cloud."""
        self._named += 1
        host = Host(f"e-{self._named}", str(UUID(int=deed.choice << 64 | self._named)), "")
        self._cluster.act(WHO, "POST", NODES_PATH, new_node(host, HOW))
        now = self._clock.now()
        path = f"{NODES_PATH}/{host.name}/status"
        self._cluster.act(WHO, "PATCH", path, alive_status(host, HOW, now, now))
        if deed.choice // 7 % 4:
            added = AddMachine(host.name, uuid=host.uuid)
            self._later(deed.seconds, lambda: self._account.do(WHO, added))

    def _register_again(self, deed: Deed) -> None:
        machine = deed.one_of(self._account.truth().machines)
        if machine is None:
            return
        self._account.do(WHO, DeleteMachine(machine.id))
        self._cluster.act(WHO, "DELETE", f"{NODES_PATH}/{machine.name}")
        self._account.do(WHO, AddMachine(machine.name))

    def _delete_all(self, _: Deed) -> None:
        for node in self._cluster.objects("nodes"):
            self._cluster.act(WHO, "DELETE", f"{NODES_PATH}/{text(node, 'metadata', 'name')}")

    def _edit_keys(self, deed: Deed) -> None:
        choice = deed.choice // 7
        match choice % 5:
            case 0:
                self._cluster.act(WHO, "DELETE", f"{CONFIG_MAPS}/{KEYS_NAME}")
            case 1:
                self._write_keys({"admin": public_key(choice), "root": f"{ALGORITHM} broken"})
            case 2:
                self._write_keys({"admin": NONE})
            case _:
                users = USERS[: 1 + choice % len(USERS)]
                self._write_keys({user: public_key(choice // 5 + len(user)) for user in users})

    def _foreign_key(self, deed: Deed) -> None:
        """Sometimes one that is also desired: it still belongs to others."""
        comment = ("", "user@home", "pileus:other-cluster")[deed.choice % 3]
        self._account.do(WHO, AddKey("admin", public_key(deed.choice % KEYS_KNOWN), comment))

    def _write_keys(self, entries: Mapping[str, str]) -> None:
        self._cluster.act(WHO, "DELETE", f"{CONFIG_MAPS}/{KEYS_NAME}")
        body = {"metadata": {"name": KEYS_NAME}, "data": entries}
        self._cluster.act(WHO, "POST", CONFIG_MAPS, body)

    def _delete_lease(self, _: Deed) -> None:
        self._meddled()
        self._cluster.act(WHO, "DELETE", f"{LEASES_PATH}/{LEASE}")

    def _edit_lease(self, _: Deed) -> None:
        self._meddled()
        body: Obj = {"spec": {"holderIdentity": OTHER_HOLDER}}
        self._cluster.act(WHO, "PATCH", f"{LEASES_PATH}/{LEASE}", body, MERGE)

    def _node(self, deed: Deed) -> Obj | None:
        return deed.one_of(self._cluster.objects("nodes"))

    def _patch(self, node: Obj, body: Obj, below: str = "") -> None:
        path = f"{NODES_PATH}/{text(node, 'metadata', 'name')}{below}"
        self._cluster.act(WHO, "PATCH", path, body, MERGE)


def public_key(number: int) -> str:
    """One of a few realistic keys."""
    fields = (ALGORITHM.encode(), bytes([number % KEYS_KNOWN]) * 32)
    raw = b"".join(len(one).to_bytes(4, "big") + one for one in fields)
    return f"{ALGORITHM} {b64encode(raw).decode()}"
