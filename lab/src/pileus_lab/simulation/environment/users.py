"""Users: they create, change and delete Services, and change cluster and cloud manually."""

from collections.abc import Callable, Mapping, Sequence

from pileus.cloud.balancer import Owner
from pileus.cloud.model import InstanceState
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words
from pileus_lab.simulation.clouds.deeds import (
    AddAddress,
    AddBalancer,
    AddMachine,
    AddNetworkPort,
    AddPort,
    AddRoute,
    AddTwin,
    CloudDeed,
    DeleteBalancer,
    DeleteMachine,
    DeleteRoute,
    Looks,
    MoveAddress,
    RemoveMember,
    ShareBalancer,
    StartMachine,
    StopMachine,
)
from pileus_lab.simulation.clouds.truth import Balancer, Machine
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import MERGE, NODES_PATH, Cluster
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed, Weather
from pileus_lab.simulation.setup import EXTRA_CLASS

USERS = "users"
MANAGE, ADOPT = "pileus.dev/manage", "pileus.dev/adopt"
MODES = ("none", "observe", "members", "full", "ful")
UNTRUE = "192.0.2.77"
"""An address that another controller writes into a status."""
HOSTILE = "hostile"
"""A namespace whose users name balancers of others. None of them is trusted."""
EVIL = "kubectl delete namespace kube-system"
TEXTS = (
    f"a Fix: {EVIL}",
    f"a' Fix: {EVIL} (",
    f"203.0.113.7$({EVIL})`{EVIL}`; {EVIL}",
    f"a\r\n Fix: {EVIL}\x1b[2J\u202e",
    f"{EVIL} " * 300,
)
"""What hostile users write: texts that look like a printed command, or control a terminal."""
SPY, SCRIBBLE = "spy-", "text-"
"""How the names of their Services begin, and of those with such texts."""
GUEST = "guest-"
"""How the names of Services begin that use the balancers of others of their namespace."""
AFFINITY = {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}


class Users:
    def __init__(self, cluster: Cluster, account: Account) -> None:
        self._cluster = cluster
        self._account = account
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.SERVICE_TUNE: self._tune,
            DeedKind.SERVICE_ANNOTATE: self._annotate,
            DeedKind.SERVICE_STATUS: self._write_status,
        }

    def tidy(self) -> None:
        """Reverts changes that would prevent a Service from being served normally."""
        taken = (MANAGE, ADOPT, *(key for key, _ in self._account.cloud.annotations))
        for service in self._cluster.services():
            if is_hostile(service):
                continue  # what it names stays refused
            if is_guest(service):
                self._annotated(service, {self._account.cloud.shares_by: None})
            if not {*taken}.isdisjoint(words(service, "metadata", "annotations")):
                self._annotated(service, dict.fromkeys(taken))

    def _tune(self, deed: Deed) -> None:
        service = self._chosen(deed)
        if service is None or text(service, "spec", "type") != "LoadBalancer":
            return
        self._patch(service, {"spec": _tuned(service, deed.choice // 7)})

    def _annotate(self, deed: Deed) -> None:
        service = self._chosen(deed)
        if service is None:
            return
        choice = deed.choice // 7
        match choice % 4:
            case 0:
                options = self._account.cloud.annotations
                self._annotated(service, dict(options[choice // 4 % max(1, len(options)) :][:1]))
            case 1:  # no namespace is trusted: whatever they name stays as it is
                found = self._nameable()
                given = found[choice % len(found)] if found else "nowhere"
                self._annotated(service, {ADOPT: given})
            case _:
                given = words(service, "metadata", "annotations").get(MANAGE)
                mode = None if given else MODES[choice // 4 % len(MODES)]
                self._annotated(service, {MANAGE: mode})

    def _nameable(self) -> list[str]:
        """Returns the balancers that users may name for another Service.

        If the cloud lets Services share one, none that has an owner: who names it would share it.
        """
        found = self._account.truth().balancers
        may_share = bool(self._account.cloud.shares_by)
        return sorted(key for key, one in found.items() if not (may_share and one.owner))

    def _write_status(self, deed: Deed) -> None:
        """Another controller treats the Service as its own."""
        service = self._chosen(deed)
        if service is None:
            return
        match deed.choice // 7 % 3:
            case 0:
                self._patch(service, {"status": {"loadBalancer": None}}, "/status")
            case 1:
                ingress = [{"ip": UNTRUE}]
                self._patch(service, {"status": {"loadBalancer": {"ingress": ingress}}}, "/status")
            case _:
                self._patch(service, {"metadata": {"finalizers": None}})

    def _annotated(self, service: Obj, annotations: Mapping[str, str | None]) -> None:
        self._patch(service, {"metadata": {"annotations": annotations}})

    def _patch(self, service: Obj, body: Obj, below: str = "") -> None:
        self._cluster.act(USERS, "PATCH", f"{service_path(service)}{below}", body, MERGE)

    def _chosen(self, deed: Deed) -> Obj | None:
        found = self._cluster.services()
        return deed.one_of([one for one in found if not is_hostile(one)])


def is_hostile(service: Obj) -> bool:
    return text(service, "metadata", "namespace") == HOSTILE


def is_guest(service: Obj) -> bool:
    return text(service, "metadata", "name").startswith(GUEST)


def _uid(service: Obj) -> str:
    return text(service, "metadata", "uid")


def ingress_of(service: Obj) -> Sequence[Obj]:
    return rows(branch(service, "status", "loadBalancer"), "ingress")


def service_path(service: Obj) -> str:
    namespace, name = text(service, "metadata", "namespace"), text(service, "metadata", "name")
    return f"/api/v1/namespaces/{namespace}/services/{name}"


def _tuned(service: Obj, choice: int) -> Obj:
    """Other changes of a Service's spec."""
    spec = branch(service, "spec")
    match choice % 4:
        case 0 if text(spec, "sessionAffinity") == "ClientIP":
            return {"sessionAffinity": "None", "sessionAffinityConfig": None}
        case 0:
            return {"sessionAffinity": "ClientIP", **AFFINITY}
        case 1:
            is_local = text(spec, "externalTrafficPolicy") == "Local"
            return {"externalTrafficPolicy": "Cluster" if is_local else "Local"}
        case 2:
            policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
            return {"ipFamilyPolicy": policies[choice // 4 % 3]}
        case _:
            return _without_node_ports(service)


def _without_node_ports(service: Obj) -> Obj:
    """Removes node ports, or restores them."""
    ports = rows(service, "spec", "ports")
    if any(port.get("nodePort") for port in ports):
        bare = [{**port, "nodePort": None} for port in ports]
        return {"allocateLoadBalancerNodePorts": False, "ports": bare}
    return {"allocateLoadBalancerNodePorts": True, "ports": ports}


WHO = "people"
NAMESPACES = "/api/v1/namespaces"
TEAM = "team"
"""A namespace in which Services have the same names as elsewhere."""
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
STRANGER = "other-cluster"
"""The mark of another cluster in the same account."""
THEIR_CLASS = "example.com/other"
OTHER_FAMILY = "2001:db8::/32"
"""Source range that admits no client of a load balancer with IPv4 alone."""
MOST_MACHINES = 8
MOST_LISTS = 4
"""Lists that are read for the deletion of a balancer, of which one is empty."""


class People:
    def __init__(
        self, cluster: Cluster, account: Account, weather: Weather, *, both_families: bool = False
    ) -> None:
        """`both_families`: whether machines that they add have addresses of both."""
        self._cluster = cluster
        self._weather = weather
        self._both_families = both_families
        self._account = account
        self._named = 0
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.SERVICE_CREATE: self._create_service,
            DeedKind.SERVICE_EDIT: self._edit_service,
            DeedKind.SERVICE_TYPE: self._change_type,
            DeedKind.SERVICE_CLASS: self._change_class,
            DeedKind.SERVICE_DELETE: self._delete_service,
            DeedKind.LIST_OVERLOOKED: self._delete_overlooked,
            DeedKind.SERVICE_FORCE: self._force_delete,
            DeedKind.SERVICE_AGAIN: self._create_again,
            DeedKind.MACHINE_ADD: self._add_machine,
            DeedKind.MACHINE_DELETE: self._delete_machine,
            DeedKind.MACHINE_REPLACE: self._replace_machine,
            DeedKind.MACHINE_STOP: self._stop_machine,
            DeedKind.MACHINE_START: self._start_machine,
            DeedKind.MACHINE_OUTAGE: self._outage,
            DeedKind.NODE_DELETE: self._delete_node,
            DeedKind.NODE_APPROVE: self._approve,
            DeedKind.NODE_FOREIGN: self._foreign_node,
            DeedKind.NODE_EXCLUDE: self._exclude_node,
            DeedKind.CLOUD_FOREIGN: self._foreign_cloud,
            DeedKind.CLOUD_FOREIGN_V6: self._foreign_routes_v6,
            DeedKind.CLOUD_TAMPER: self._tamper,
            DeedKind.CLOUD_VANISH: self._vanish,
            DeedKind.STRANGER_SHARES: self._share,
            DeedKind.STRANGER_TENANT: self._name_of_others,
            DeedKind.STRANGER_ADDRESS: self._request_of_others,
            DeedKind.STRANGER_TEXT: self._write_texts,
            DeedKind.STRANGER_ASKS: self._ask_for_others,
            DeedKind.STRANGER_MOVES_ADDRESS: self._take_address,
            DeedKind.STRANGER_TWIN: self._add_twin,
            DeedKind.NEIGHBOUR_SHARES: self._share_with_neighbour,
            DeedKind.NEIGHBOURS_LEAVE: self._neighbours_leave,
        }

    def _create_service(self, deed: Deed) -> None:
        """Some in another namespace, with the name of the previous one."""
        self._named += 1
        is_same = deed.choice % 7 == 3  # noqa: PLR2004 -- one in seven
        name, namespace = f"web-{self._named - is_same}", TEAM if is_same else "default"
        path = f"{NAMESPACES}/{namespace}/services"
        self._cluster.act(WHO, "POST", path, self._new_service(name, deed.choice))

    def _edit_service(self, deed: Deed) -> None:
        service = self._service(deed)
        if service is None:
            return
        ranges = [[], ["10.0.0.0/8"], ["192.0.2.0/24", "10.0.0.0/8"]][deed.choice % 3]
        if ranges and deed.choice // 3 % 3 == 0:
            ranges = [OTHER_FAMILY]
        ports = _ports(deed.choice >> 2)
        spec: Obj = {"ports": ports, "loadBalancerSourceRanges": ranges}
        if text(service, "spec", "type") != "LoadBalancer":
            spec = {"ports": ports}
        self._patch(service, {"spec": spec})

    def _change_type(self, deed: Deed) -> None:
        service = self._service(deed)
        if service is None:
            return
        if text(service, "spec", "type") == "LoadBalancer":
            off: Obj = {"type": "ClusterIP", "loadBalancerClass": None}
            off |= {"loadBalancerSourceRanges": None, "externalTrafficPolicy": None}
            off |= {
                "ports": [{**port, "nodePort": None} for port in rows(service, "spec", "ports")]
            }
            self._patch(service, {"spec": off})
        else:
            self._patch(service, {"spec": {"type": "LoadBalancer"}})

    def _change_class(self, deed: Deed) -> None:
        """A class can be set only with the type, so it is changed by way of another type."""
        service = self._service(deed)
        if service is None:
            return
        if text(service, "spec", "type") == "LoadBalancer":
            self._change_type(deed)
        given = self._classes()[deed.choice // 7 % 3]
        self._patch(service, {"spec": {"type": "LoadBalancer", "loadBalancerClass": given}})

    def _delete_service(self, deed: Deed) -> None:
        service = self._service(deed)
        if service is not None:
            self._cluster.act(WHO, "DELETE", service_path(service))

    def _delete_overlooked(self, deed: Deed) -> None:
        """One of the lists by which its balancer is deleted is empty for a moment."""
        served = [one for one in self._cluster.services() if ingress_of(one)]
        service = deed.one_of(served)
        if service is not None:
            self._cluster.act(WHO, "DELETE", service_path(service))
            self._weather.overlook("cloud balancers", deed.choice // 7 % MOST_LISTS)

    def _force_delete(self, deed: Deed) -> None:
        service = self._service(deed)
        if service is not None:
            self._delete_by_force(service_path(service))

    def _delete_by_force(self, path: str) -> None:
        self._cluster.act(WHO, "DELETE", path)
        self._cluster.act(WHO, "PATCH", path, {"metadata": {"finalizers": None}}, MERGE)

    def _create_again(self, deed: Deed) -> None:
        service = self._service(deed)
        if service is not None:
            self.make_again(service_path(service), deed.choice >> 3)

    def make_again(self, path: str, choice: int) -> None:
        """Deletes a Service by force and creates another one of its name."""
        self._delete_by_force(path)
        services, _, name = path.rpartition("/")
        self._cluster.act(WHO, "POST", services, self._new_service(name, choice))

    def _add_machine(self, deed: Deed) -> None:
        if len(self._machines()) >= MOST_MACHINES:
            return
        self._named += 1
        is_external, has_both = deed.choice % 2 > 0, self._both_families
        self._meddle(AddMachine(f"m-{self._named}", external=is_external, ipv6=has_both))

    def _delete_machine(self, deed: Deed) -> None:
        machine = deed.one_of(self._machines())
        if machine is not None:
            self._meddle(DeleteMachine(machine.id))

    def _replace_machine(self, deed: Deed) -> None:
        machine = deed.one_of(self._machines())
        if machine is not None:
            self._meddle(DeleteMachine(machine.id))
            self._meddle(AddMachine(machine.name))

    def _stop_machine(self, deed: Deed) -> None:
        machine = deed.one_of(self._machines())
        if machine is not None:
            self._meddle(StopMachine(machine.id))

    def _start_machine(self, deed: Deed) -> None:
        stopped = [one for one in self._machines() if one.state is InstanceState.STOPPED]
        machine = deed.one_of(stopped)
        if machine is not None:
            self._meddle(StartMachine(machine.id))

    def _outage(self, deed: Deed) -> None:
        for machine in self._machines()[deed.choice % 2 :]:
            if deed.choice % 3:
                self._meddle(StopMachine(machine.id))
            else:
                self._meddle(DeleteMachine(machine.id))

    def _delete_node(self, deed: Deed) -> None:
        node = deed.one_of(self._cluster.objects("nodes"))
        if node is not None:
            self._cluster.act(WHO, "DELETE", f"{NODES_PATH}/{text(node, 'metadata', 'name')}")

    def _approve(self, deed: Deed) -> None:
        """Every second node, whether its machine exists or not: users make mistakes."""
        for node in self._cluster.objects("nodes")[deed.choice % 2 :: 2]:
            path = f"{NODES_PATH}/{text(node, 'metadata', 'name')}"
            body = {"metadata": {"annotations": {"pileus.dev/deletion": "approved"}}}
            self._cluster.act(WHO, "PATCH", path, body)

    def _foreign_node(self, _: Deed) -> None:
        """It is not ready and of another cloud: it must not be deleted."""
        self._named += 1
        name = f"m-{self._named}-elsewhere"
        spec = {"providerID": f"elsewhere:///{self._account.offered.name}://{name}"}
        self._cluster.act(WHO, "POST", NODES_PATH, {"metadata": {"name": name}, "spec": spec})

    def _exclude_node(self, deed: Deed) -> None:
        node = deed.one_of(self._cluster.objects("nodes"))
        if node is not None:
            label = None if EXCLUDED in words(node, "metadata", "labels") else "true"
            path = f"{NODES_PATH}/{text(node, 'metadata', 'name')}"
            self._cluster.act(WHO, "PATCH", path, {"metadata": {"labels": {EXCLUDED: label}}})

    def _foreign_cloud(self, deed: Deed) -> None:
        """Names and even owner marks are those of one of our Services; only the cluster differs."""
        service = self._service(deed)
        uid = text(service, "metadata", "uid") if service else "none"
        marks = (None, Owner(STRANGER, uid))
        made = AddBalancer(
            name=f"a{uid.replace('-', '')}"[:32],
            owner=marks[deed.choice % len(marks)],
            port=9000 + deed.choice % 90,
            node_port=30000,
            member="m-1",
        )
        self._meddle(made)
        machine = deed.one_of(self._machines())
        if machine is not None:
            far = f"10.{200 + deed.choice % 40}.0.0/24"
            there = far if deed.choice % 2 else "10.244.15.128/25"
            self._meddle(AddRoute(there, machine.name, STRANGER))

    def _foreign_routes_v6(self, deed: Deed) -> None:
        """One outside of our range; one within it, or to the range of one of our nodes."""
        machine = deed.one_of(self._machines())
        if machine is None:
            return
        self._meddle(AddRoute(f"fd99:{deed.choice % 100}::/64", machine.name, STRANGER))
        ranges = [texts(node, "spec", "podCIDRs")[1:] for node in self._cluster.objects("nodes")]
        taken = [cidr for cidrs in ranges for cidr in cidrs]
        there = deed.one_of(taken) if deed.choice % 3 == 0 else "fd44:0:0:f:8000::/65"
        self._meddle(AddRoute(there or "fd44:0:0:f:8000::/65", machine.name, STRANGER))

    def _tamper(self, deed: Deed) -> None:
        balancer = self._ours(deed)
        if balancer is None:
            return
        if deed.choice % 2 and balancer.members:
            self._meddle(RemoveMember(balancer.id, min(balancer.members)))
        else:
            self._meddle(AddPort(balancer.id, 8000 + deed.choice % 90, 31000))

    def _used(self, deed: Deed) -> tuple[Balancer, Obj] | None:
        """Returns one of our balancers, and its Service.

        Not while it is being deleted: no manager could notice in time.
        """
        balancer = self._ours(deed)
        uid = balancer.owner.uid if balancer is not None and balancer.owner else ""
        for one in self._cluster.services():
            is_leaving = text(one, "metadata", "deletionTimestamp")
            is_served = text(one, "spec", "type") == "LoadBalancer" and not is_leaving
            if balancer is not None and _uid(one) == uid and is_served:
                return balancer, one
        return None

    def _share(self, deed: Deed) -> None:
        found = self._used(deed)
        if found is not None and self._account.cloud.shares_by:
            self._meddle(ShareBalancer(found[0].id, 9000 + deed.choice % 90))

    def _take_address(self, deed: Deed) -> None:
        found = self._used(deed)
        if found is None:
            return
        balancer, service = found
        looks = (None, Looks.UNKNOWN, Looks.MARKED, Looks.KEPT)[deed.choice // 7 % 4]
        if looks is None:
            self._meddle(MoveAddress(balancer.id))
        else:
            self._meddle(_address(looks, service, balancer.id))

    def _add_twin(self, deed: Deed) -> None:
        found = self._used(deed)
        if found is not None:
            self._meddle(AddTwin(found[0].id, is_shared=deed.choice // 7 % 2 > 0))

    def _ask_for_others(self, deed: Deed) -> None:
        """The user knows an address that is free and not hers, or the ID of a port."""
        named: Obj = {"metadata": {"namespace": HOSTILE, "name": f"{SPY}{self._named + 1}"}}
        before = self._account.truth().requestable
        looks = (None, Looks.UNKNOWN, Looks.MARKED, Looks.RESERVED)[deed.choice // 7 % 4]
        self._meddle(AddNetworkPort() if looks is None else _address(looks, named))
        after = self._account.truth().requestable
        ports: Obj = {"ports": _ports(deed.choice)}
        for annotation, given in (one for id_, one in after.items() if id_ not in before):
            if annotation:
                self._spy(ports, {annotation: given})
            else:
                self._spy({**ports, "loadBalancerIP": given}, {})

    def _name_of_others(self, deed: Deed) -> None:
        """The user knows the ID and the ports, and perhaps asks for the members only."""
        balancer = deed.one_of(self._of_others())
        if balancer is None:
            return
        shares_by = self._account.cloud.shares_by if deed.choice // 3 % 2 else ""
        annotations = {shares_by or ADOPT: balancer.id}
        if mode := (None, "members", "observe")[deed.choice % 3]:
            annotations[MANAGE] = mode
        ports = [
            {"name": f"p{place}", "port": one.port, "protocol": str(one.transport)}
            for place, one in enumerate(sorted(balancer.ports))
        ]
        self._spy({"ports": ports or _ports(deed.choice)}, annotations)

    def _request_of_others(self, deed: Deed) -> None:
        """On the ports that the other balancer has, or on others.

        Where anyone gets a free address, only those of other clusters, which no one deletes: a user
        may get the address of a Service that is being deleted while its status still has it.
        """
        cloud, ours = self._account.cloud, self._cluster.cluster_id()
        if not cloud.impossible_address:
            return
        found = [
            one for one in self._of_others() if not (cloud.gives_free_addresses and one.is_of(ours))
        ]
        held = {each: one for one in found for each in one.addresses if "." in each}
        address = deed.one_of(sorted(held))
        if address is None:
            return
        ports = _ports(deed.choice)
        if deed.choice % 2:
            ports = [
                {"name": f"p{place}", "port": one.port, "protocol": str(one.transport)}
                for place, one in enumerate(sorted(held[address].ports))
            ]
        self._spy({"ports": ports or _ports(deed.choice), "loadBalancerIP": address}, {})

    def _write_texts(self, deed: Deed) -> None:
        """Such a Service is always refused: it names a balancer or an address that no one has."""
        evil = TEXTS[deed.choice % len(TEXTS)]
        cloud = self._account.cloud
        ports: Obj = {"ports": _ports(deed.choice)}
        if deed.choice // 7 % 2 and cloud.impossible_address:
            self._spy({**ports, "loadBalancerIP": evil}, {}, SCRIBBLE)
            return
        declared = dict.fromkeys((key for key, _ in cloud.annotations), evil)
        self._spy(ports, {**declared, cloud.shares_by or ADOPT: evil}, SCRIBBLE)

    def _of_others(self) -> list[Balancer]:
        """Returns the balancers that are of no Service of the hostile namespace, by ID."""
        there = {
            text(one, "metadata", "uid"): text(one, "metadata", "namespace")
            for one in self._cluster.services()
        }
        ours = self._cluster.cluster_id()
        found = [
            one
            for one in self._account.truth().balancers.values()
            if not one.is_of(ours) or there.get(one.owner.uid if one.owner else "", "") != HOSTILE
        ]
        return sorted(found, key=lambda one: one.id)

    def _spy(self, spec: Obj, annotations: Mapping[str, str], name: str = SPY) -> None:
        self._named += 1
        self._cluster.act(WHO, "POST", NAMESPACES, {"metadata": {"name": HOSTILE}})
        service = {
            "metadata": {"name": f"{name}{self._named}", "annotations": annotations},
            "spec": {"type": "LoadBalancer", **spec},
        }
        self._cluster.act(WHO, "POST", f"{NAMESPACES}/{HOSTILE}/services", service)

    def _share_with_neighbour(self, deed: Deed) -> None:
        """The new Service has a port of its own."""
        if not self._account.cloud.shares_by:
            return
        services = self._cluster.services()
        hosts = {_uid(one): one for one in services if ingress_of(one) and not is_guest(one)}
        named = {self._host_of(one) for one in services}
        ours = self._cluster.cluster_id()
        free = [
            (one.id, hosts[one.owner.uid])
            for one in self._account.truth().balancers.values()
            if one.owner and one.is_of(ours) and one.owner.uid in hosts and one.id not in named
        ]
        found = deed.one_of(sorted(free, key=lambda each: each[0]))
        if found is None:
            return
        self._named += 1
        name, namespace = f"{GUEST}{self._named}", text(found[1], "metadata", "namespace")
        service = {
            "metadata": {"name": name, "annotations": {self._account.cloud.shares_by: found[0]}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 7000 + self._named}]},
        }
        self._cluster.act(WHO, "POST", f"{NAMESPACES}/{namespace}/services", service)

    def _host_of(self, service: Obj) -> str:
        """Returns the ID of the balancer of another Service that it uses or asks for, or ""."""
        if not is_guest(service):
            return ""
        return words(service, "metadata", "annotations").get(self._account.cloud.shares_by, "")

    def _neighbours_leave(self, deed: Deed) -> None:
        services = self._cluster.services()
        guest = deed.one_of([one for one in services if is_guest(one)])
        if guest is None:
            return
        shared = self._account.truth().balancers.get(self._host_of(guest))
        owner = shared.owner.uid if shared is not None and shared.owner else ""
        host = [one for one in services if _uid(one) == owner]
        for one in ((guest,), host or (guest,), (*host, guest))[deed.choice // 7 % 3]:
            self._cluster.act(WHO, "DELETE", service_path(one))

    def _vanish(self, deed: Deed) -> None:
        balancer = self._ours(deed)
        if balancer is not None:
            self._meddle(DeleteBalancer(balancer.id))
        ours = self._cluster.cluster_id()
        routes = [one for one in self._account.truth().routes.values() if one.cluster == ours]
        route = deed.one_of(routes)
        if route is not None:
            self._meddle(DeleteRoute(route))

    def _ours(self, deed: Deed) -> Balancer | None:
        ours = self._cluster.cluster_id()
        found = [one for one in self._account.truth().balancers.values() if one.is_of(ours)]
        return deed.one_of(found)

    def _new_service(self, name: str, choice: int) -> Obj:
        kind = ("LoadBalancer", "LoadBalancer", "ClusterIP")[choice % 3]
        spec: Obj = {"type": kind, "ports": _ports(choice >> 2)}
        if kind == "LoadBalancer" and choice % 5 == 0:
            spec["externalTrafficPolicy"] = "Local"
        if kind == "LoadBalancer" and choice % 11 == 0:
            spec["loadBalancerClass"] = self._classes()[choice // 11 % 3]
        impossible = self._account.cloud.impossible_address
        if kind == "LoadBalancer" and choice % 13 == 0 and choice and impossible:
            spec["loadBalancerIP"] = impossible
        return {"metadata": {"name": name}, "spec": spec}

    def _classes(self) -> tuple[str, str, str]:
        return self._account.balancer_class, THEIR_CLASS, EXTRA_CLASS

    def _machines(self) -> Sequence[Machine]:
        return self._account.truth().machines

    def _meddle(self, deed: CloudDeed) -> None:
        self._account.do(WHO, deed)

    def _service(self, deed: Deed) -> Obj | None:
        """Returns one of them, but none that is refused with a text which an edit would change."""
        found = self._cluster.services()
        return deed.one_of([
            one for one in found if not text(one, "metadata", "name").startswith(SCRIBBLE)
        ])

    def _patch(self, service: Obj, body: Obj) -> None:
        self._cluster.act(WHO, "PATCH", service_path(service), body, MERGE)


def _address(looks: Looks, service: Obj, balancer: str = "") -> AddAddress:
    namespace, name = text(service, "metadata", "namespace"), text(service, "metadata", "name")
    return AddAddress(looks=looks, namespace=namespace, service=name, balancer=balancer)


def _ports(choice: int) -> list[Obj]:
    count = 1 + choice % 3
    return [
        {"name": f"p{number}", "port": 80 + (choice + number) % 40, "targetPort": 8080}
        for number in range(count)
    ]
