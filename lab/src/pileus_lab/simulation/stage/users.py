"""Those who write Services with care, or without: details, annotations, and others' fields."""

from collections.abc import Callable, Mapping

from pileus_lab.apiserver.tree import Obj, branch, rows, text, words
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed
from pileus_lab.simulation.stage.account import Account
from pileus_lab.simulation.stage.cluster import MERGE, Cluster

WHO = "users"
MANAGE, ADOPT = "pileus.dev/manage", "pileus.dev/adopt"
MODES = ("none", "observe", "members", "full", "ful")
UNTRUE = "192.0.2.77"
"""An address that somebody else writes into a status."""
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
        """Take back what would keep a Service from being served as all are."""
        taken = (MANAGE, ADOPT, *(key for key, _ in self._account.cloud.annotations))
        for service in self._cluster.services():
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
            case 1:
                found = sorted(self._account.truth().balancers)
                given = found[choice % len(found)] if found else "nowhere"
                self._annotated(service, {ADOPT: given})
            case _:
                given = words(service, "metadata", "annotations").get(MANAGE)
                mode = None if given else MODES[choice // 4 % len(MODES)]
                self._annotated(service, {MANAGE: mode})

    def _write_status(self, deed: Deed) -> None:
        """Another controller believes that the Service is its own."""
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
        self._cluster.act(WHO, "PATCH", f"{service_path(service)}{below}", body, MERGE)

    def _chosen(self, deed: Deed) -> Obj | None:
        return deed.one_of(self._cluster.services())


def service_path(service: Obj) -> str:
    namespace, name = text(service, "metadata", "namespace"), text(service, "metadata", "name")
    return f"/api/v1/namespaces/{namespace}/services/{name}"


def _tuned(service: Obj, choice: int) -> Obj:
    """What else people change of a Service's spec."""
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
    """No node ports any more; or again."""
    ports = rows(service, "spec", "ports")
    if any(port.get("nodePort") for port in ports):
        bare = [{**port, "nodePort": None} for port in ports]
        return {"allocateLoadBalancerNodePorts": False, "ports": bare}
    return {"allocateLoadBalancerNodePorts": True, "ports": ports}
