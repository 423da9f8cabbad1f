"""Services: defaults, what follows from a change of type, and columns. See `service_faults.py`."""

from pileus_lab.apiserver import naming
from pileus_lab.apiserver.resource import STATUS_VERBS, Column, Resource, Rules, Subresource
from pileus_lab.apiserver.resources import service_faults
from pileus_lab.apiserver.resources.cells import AGE, NAME, NONE
from pileus_lab.apiserver.tree import (
    Obj,
    branch,
    copied,
    default,
    grow,
    items,
    look,
    number,
    rows,
    text,
    texts,
    words,
)

AFFINITY_SECONDS = 10800


def is_external(value: Obj) -> bool:
    """Whether traffic may come from outside of the cluster."""
    kind = text(value, "spec", "type")
    if kind in {"LoadBalancer", "NodePort"}:
        return True
    return kind == "ClusterIP" and bool(items(value, "spec", "externalIPs"))


def needs_health_port(value: Obj) -> bool:
    spec = branch(value, "spec")
    is_local = text(spec, "externalTrafficPolicy") == "Local"
    return text(spec, "type") == "LoadBalancer" and is_local


def _default(value: Obj) -> None:
    spec = grow(value, "spec")
    default(spec, sessionAffinity="None", type="ClusterIP")
    _default_affinity(spec)
    for port in rows(spec, "ports"):
        default(port, protocol="TCP")
        if look(port, "targetPort") in {None, 0, ""}:
            port["targetPort"] = number(port, "port")
    if is_external(value):
        default(spec, externalTrafficPolicy="Cluster")
    if text(spec, "type") != "ExternalName":
        default(spec, internalTrafficPolicy="Cluster")
    if text(spec, "type") == "LoadBalancer":
        default(spec, allocateLoadBalancerNodePorts=True)
        _default_ingress(value)


def _default_affinity(spec: Obj) -> None:
    if text(spec, "sessionAffinity") == "None":
        spec.pop("sessionAffinityConfig", None)
    elif text(spec, "sessionAffinity") == "ClientIP":
        client = grow(spec, "sessionAffinityConfig", "clientIP")
        default(client, timeoutSeconds=AFFINITY_SECONDS)


def _default_ingress(value: Obj) -> None:
    for ingress in rows(value, "status", "loadBalancer", "ingress"):
        if text(ingress, "ip"):
            default(ingress, ipMode="VIP")


def _create(value: Obj) -> None:
    value["status"] = {"loadBalancer": {}}
    spec = branch(value, "spec")
    if text(spec, "clusterIP") and not items(spec, "clusterIPs"):
        spec["clusterIPs"] = [text(spec, "clusterIP")]


def _update(new: Obj, old: Obj) -> None:
    _follow_cluster_ip(branch(new, "spec"), branch(old, "spec"))
    _keep_allocated(new, old)
    _drop_by_type(new, old)


def _follow_cluster_ip(new: Obj, old: Obj) -> None:
    """Old clients know `clusterIP` only: its plural follows."""
    before, after = text(old, "clusterIP"), text(new, "clusterIP")
    if items(old, "clusterIPs") and not items(new, "clusterIPs") and before == after:
        new["clusterIPs"] = copied(old["clusterIPs"])
    if before != after and items(new, "clusterIPs") == items(old, "clusterIPs"):
        if after:
            new["clusterIPs"] = [after]
        else:
            new.pop("clusterIPs", None)


def _keep_allocated(new: Obj, old: Obj) -> None:
    """Who leaves out what the server once gave wants to keep it."""
    before, after = branch(old, "spec"), branch(new, "spec")
    kinds = {text(before, "type"), text(after, "type")}
    unset = not text(after, "clusterIP") and not items(after, "clusterIPs")
    if "ExternalName" not in kinds and unset and text(before, "clusterIP"):
        after["clusterIP"] = before["clusterIP"]
        after["clusterIPs"] = copied(before["clusterIPs"])
    if kinds <= {"NodePort", "LoadBalancer"}:
        given = {
            (text(p, "protocol"), number(p, "port")): number(p, "nodePort")
            for p in rows(before, "ports")
        }
        wanted = {number(p, "nodePort") for p in rows(after, "ports")}
        for port in rows(after, "ports"):
            kept = given.get((text(port, "protocol"), number(port, "port")), 0)
            if not number(port, "nodePort") and kept and kept not in wanted:
                port["nodePort"] = kept
    if needs_health_port(new) and needs_health_port(old):
        default(after, healthCheckNodePort=number(before, "healthCheckNodePort"))


def _drop_by_type(new: Obj, old: Obj) -> None:
    """What only the old type had goes, unless the client changed it in the same breath."""
    before, after = branch(old, "spec"), branch(new, "spec")
    was, now = text(before, "type"), text(after, "type")
    if now == "ExternalName" and was != now:
        _drop_equal(after, before, "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
        _drop_equal(after, before, "internalTrafficPolicy")
    outward = {"NodePort", "LoadBalancer"}
    if was in outward and now not in outward:
        _drop_node_ports(after, before)
    if needs_health_port(old) and not needs_health_port(new):
        _drop_equal(after, before, "healthCheckNodePort")
    if was == "LoadBalancer" and now != was:
        _drop_equal(after, before, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_external(old) and not is_external(new):
        _drop_equal(after, before, "externalTrafficPolicy")
    if now != "LoadBalancer":
        grow(new, "status")["loadBalancer"] = {}


def _drop_node_ports(after: Obj, before: Obj) -> None:
    have, had = ({number(p, "nodePort") for p in rows(s, "ports")} - {0} for s in (after, before))
    if have == had:
        for port in rows(after, "ports"):
            port.pop("nodePort", None)


def _drop_equal(after: Obj, before: Obj, *names: str) -> None:
    for name in names:
        if look(after, name) == look(before, name):
            after.pop(name, None)


def _cluster_ip(value: Obj) -> str:
    return next(iter(texts(value, "spec", "clusterIPs")), NONE)


def _external_ip(value: Obj) -> str:
    spec, kind = branch(value, "spec"), text(value, "spec", "type")
    given = texts(spec, "externalIPs")
    if kind == "ExternalName":
        return text(spec, "externalName")
    if kind == "LoadBalancer":
        ingress = rows(value, "status", "loadBalancer", "ingress")
        found = sorted({text(i, "ip") or text(i, "hostname") for i in ingress})
        return ",".join([*found, *given]) or "<pending>"
    return ",".join(given) or NONE


def _ports(value: Obj) -> str:
    return ",".join(_port(p) for p in rows(value, "spec", "ports")) or NONE


def _port(port: Obj) -> str:
    node = number(port, "nodePort")
    middle = f":{node}" if node > 0 else ""
    return f"{number(port, 'port')}{middle}/{text(port, 'protocol')}"


def _selector(value: Obj) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted(words(value, "spec", "selector").items())) or NONE


SERVICES = Resource(
    kind="Service",
    plural="services",
    schema="core.Service",
    returns_deleted=True,
    creates_on_update=True,
    short_names=("svc",),
    categories=("all",),
    subresources=(Subresource("status", "Service", STATUS_VERBS),),
    rules=Rules(
        default=_default,
        create=_create,
        update=_update,
        validate=service_faults.validate,
        validate_update=service_faults.validate_update,
        name_faults=naming.label_faults,
    ),
    columns=(
        NAME,
        Column("Type", lambda o: text(o, "spec", "type")),
        Column("Cluster-IP", _cluster_ip),
        Column("External-IP", _external_ip),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector, wide=True),
    ),
    selectable={"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
)
