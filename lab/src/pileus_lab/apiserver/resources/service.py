"""Services: defaults, changes of type, validation and columns."""

import ipaddress
import re
from collections.abc import Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import (
    AGE,
    NAME,
    NONE,
    STATUS_VERBS,
    Column,
    Resource,
    Rules,
    Subresource,
)
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

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")
DAY = 86400
MAX_PORT = 65535
BAD_PORT = "must be between 1 and 65535, inclusive"
LOAD_BALANCERS_ONLY = "may only be used when `type` is 'LoadBalancer'"
NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def validate(value: Obj) -> Iterator[Fault]:
    spec = branch(value, "spec")
    yield from _check_type(spec)
    yield from _check_ports(spec)
    yield from naming.check_labels(words(spec, "selector"), "spec.selector")
    yield from _check_affinity(spec)
    if text(spec, "type") != "ExternalName":
        yield from check_cluster_ips(spec)
    for index, ip in enumerate(texts(spec, "externalIPs")):
        yield from _check_ip(f"spec.externalIPs[{index}]", ip)
    if text(spec, "type") not in TYPES:
        yield field_errors.unsupported("spec.type", text(spec, "type"), TYPES)
    yield from _check_node_ports(spec)
    yield from _check_balancer(spec)
    yield from _check_traffic(value)
    path, ingresses = (
        "status.loadBalancer.ingress",
        rows(value, "status", "loadBalancer", "ingress"),
    )
    if ingresses and text(spec, "type") != "LoadBalancer":
        yield field_errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")
        return
    for index, ingress in enumerate(ingresses):
        yield from _check_ingress(ingress, f"{path}[{index}]")


def _check_ingress(ingress: Obj, path: str) -> Iterator[Fault]:
    ip, mode, host = (text(ingress, part) for part in ("ip", "ipMode", "hostname"))
    if ip:
        yield from _check_ip(f"{path}.ip", ip)
    if ip and not mode:
        yield field_errors.required(f"{path}.ipMode", "must be specified when `ip` is set")
    if mode and not ip:
        yield field_errors.forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
    if mode and mode not in {"VIP", "Proxy"}:
        yield field_errors.unsupported(f"{path}.ipMode", mode, ("VIP", "Proxy"))
    if host:
        faults = naming.subdomain_faults(host)
        yield from (field_errors.invalid(f"{path}.hostname", host, why) for why in faults)
        if not list(_check_ip("", host)):
            detail = "must be a DNS name, not an IP address"
            yield field_errors.invalid(f"{path}.hostname", host, detail)


def _check_type(spec: Obj) -> Iterator[Fault]:
    headless, kind = texts(spec, "clusterIPs")[:1] == ["None"], text(spec, "type")
    if not items(spec, "ports") and not headless and kind != "ExternalName":
        yield field_errors.required("spec.ports")
    if kind in {"LoadBalancer", "NodePort"} and headless:
        detail = f"may not be set to 'None' for {kind} services"
        yield field_errors.invalid("spec.clusterIPs[0]", "None", detail)
    if kind == "ExternalName":
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if look(spec, name):
                yield field_errors.forbidden(
                    f"spec.{name}", "may not be set for ExternalName services"
                )
        name = text(spec, "externalName").removesuffix(".")
        if not name:
            yield field_errors.required("spec.externalName")
        else:
            faults = naming.subdomain_faults(name)
            yield from (field_errors.invalid("spec.externalName", name, why) for why in faults)


def _check_ports(spec: Obj) -> Iterator[Fault]:
    ports, names = rows(spec, "ports"), set[str]()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", text(port, "name")
        if not name and len(ports) > 1:
            yield field_errors.required(f"{path}.name")
        elif name:
            faults = naming.label_faults(name)
            yield from (field_errors.invalid(f"{path}.name", name, why) for why in faults)
            if name in names:
                yield field_errors.duplicate(f"{path}.name", name)
            names.add(name)
        yield from _check_port(port, path)


def _check_port(port: Obj, path: str) -> Iterator[Fault]:
    if not 0 < number(port, "port") <= MAX_PORT:
        yield field_errors.invalid(f"{path}.port", number(port, "port"), BAD_PORT)
    if text(port, "protocol") not in PROTOCOLS:
        yield field_errors.unsupported(f"{path}.protocol", text(port, "protocol"), PROTOCOLS)
    target = look(port, "targetPort")
    if isinstance(target, int) and not 0 < target <= MAX_PORT:
        yield field_errors.invalid(f"{path}.targetPort", target, BAD_PORT)
    elif isinstance(target, str):
        yield from (
            field_errors.invalid(f"{path}.targetPort", target, w) for w in port_name_faults(target)
        )


def port_name_faults(name: str) -> Iterator[str]:
    if len(name) > 15:  # noqa: PLR2004 -- an IANA service name
        yield "must be no more than 15 bytes"
    if not _PORT_NAME.fullmatch(name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    elif not re.search(r"[a-z]", name):
        yield "must contain at least one letter (a-z)"


def _check_affinity(spec: Obj) -> Iterator[Fault]:
    affinity = text(spec, "sessionAffinity")
    if affinity not in {"ClientIP", "None"}:
        yield field_errors.unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "ClientIP":
        seconds = number(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
        if not 0 < seconds <= DAY:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            yield field_errors.invalid(path, seconds, f"must be greater than 0 and less than {DAY}")


def check_cluster_ips(spec: Obj) -> Iterator[Fault]:
    single, plural = text(spec, "clusterIP"), texts(spec, "clusterIPs")
    if single and not plural:
        yield field_errors.required("spec.clusterIPs")
    elif single and plural[0] != single:
        yield field_errors.invalid("spec.clusterIPs", plural, "first value must match `clusterIP`")
    elif plural and not single:
        detail = "must be empty when `clusterIP` is not specified"
        yield field_errors.invalid("spec.clusterIPs", plural, detail)
    yield from _check_families(spec)
    if plural[:1] == ["None"]:
        if len(plural) > 1:
            detail = "'None' must be the first and only value"
            yield field_errors.invalid("spec.clusterIPs", plural, detail)
        return
    wrong = [f for i, ip in enumerate(plural) for f in _check_ip(f"spec.clusterIPs[{i}]", ip)]
    yield from wrong or _check_ip_families(plural, texts(spec, "ipFamilies"))


def _check_families(spec: Obj) -> Iterator[Fault]:
    families = texts(spec, "ipFamilies")
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield field_errors.unsupported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        if family in families[:index]:
            yield field_errors.duplicate(f"spec.ipFamilies[{index}]", family)
    policy = text(spec, "ipFamilyPolicy")
    if policy and policy not in FAMILY_POLICIES:
        yield field_errors.unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES)


def _check_ip_families(ips: list[str], families: list[str]) -> Iterator[Fault]:
    if len(ips) > len(FAMILIES):
        yield field_errors.invalid("spec.clusterIPs", ips, "may only hold up to 2 values")
    if len({family_of(ip) for ip in ips}) < len(ips):
        detail = "may specify no more than one IP for each IP family"
        yield field_errors.invalid("spec.clusterIPs", ips, detail)
    for index, (ip, family) in enumerate(zip(ips, families, strict=False)):
        if family_of(ip) != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield field_errors.invalid(f"spec.clusterIPs[{index}]", ip, detail)


def family_of(ip: str) -> str:
    return f"IPv{ipaddress.ip_address(ip).version}"


def _check_ip(path: str, ip: str) -> Iterator[Fault]:
    try:
        ipaddress.ip_address(ip)
    except ValueError:
        detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield field_errors.invalid(path, ip, detail)


def _check_node_ports(spec: Obj) -> Iterator[Fault]:
    ports = rows(spec, "ports")
    if text(spec, "type") == "ClusterIP":
        for index, port in enumerate(ports):
            if number(port, "nodePort"):
                detail = "may not be used when `type` is 'ClusterIP'"
                yield field_errors.forbidden(f"spec.ports[{index}].nodePort", detail)
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (text(port, "protocol"), number(port, "nodePort"))
        if pair[1] and pair in seen:
            yield field_errors.duplicate(f"spec.ports[{index}].nodePort", pair[1])
        seen.add(pair)
    used: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (text(port, "protocol"), number(port, "port"))
        if pair in used:
            shown = {"protocol": pair[0], "port": pair[1], "targetPort": 0}
            yield field_errors.duplicate(f"spec.ports[{index}]", shown)
        used.add(pair)


def _check_balancer(spec: Obj) -> Iterator[Fault]:
    is_balancer = text(spec, "type") == "LoadBalancer"
    ranges = texts(spec, "loadBalancerSourceRanges")
    if ranges and not is_balancer:
        yield field_errors.forbidden("spec.LoadBalancerSourceRanges", LOAD_BALANCERS_ONLY)
    for index, cidr in enumerate(ranges):
        try:
            ipaddress.ip_network(cidr.strip(), strict=False)
        except ValueError:
            yield field_errors.invalid(
                f"spec.LoadBalancerSourceRanges[{index}]", cidr.strip(), NO_CIDR
            )
    if look(spec, "allocateLoadBalancerNodePorts") is not None and not is_balancer:
        yield field_errors.forbidden("spec.allocateLoadBalancerNodePorts", LOAD_BALANCERS_ONLY)
    balancer_class = look(spec, "loadBalancerClass")
    if isinstance(balancer_class, str):
        if not is_balancer:
            yield field_errors.forbidden("spec.loadBalancerClass", LOAD_BALANCERS_ONLY)
        for why in naming.qualified_faults(balancer_class):
            yield field_errors.invalid("spec.loadBalancerClass", balancer_class, why)


def _check_traffic(value: Obj) -> Iterator[Fault]:
    spec = branch(value, "spec")
    policy, kind = text(spec, "externalTrafficPolicy"), text(spec, "type")
    is_external = kind in {"LoadBalancer", "NodePort"} or bool(texts(spec, "externalIPs"))
    if policy and not is_external:
        detail = "may only be set for externally-accessible services"
        yield field_errors.invalid("spec.externalTrafficPolicy", policy, detail)
    elif is_external and policy not in {"Cluster", "Local"}:
        yield field_errors.unsupported("spec.externalTrafficPolicy", policy, ("Cluster", "Local"))
    health = number(spec, "healthCheckNodePort")
    if health and not (kind == "LoadBalancer" and policy == "Local"):
        yield field_errors.invalid(
            "spec.healthCheckNodePort",
            health,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        )
    internal = look(spec, "internalTrafficPolicy")
    if isinstance(internal, str) and internal not in {"Cluster", "Local"}:
        yield field_errors.unsupported("spec.internalTrafficPolicy", internal, ("Cluster", "Local"))


def validate_update(new: Obj, old: Obj) -> Iterator[Fault]:
    before, after = branch(old, "spec"), branch(new, "spec")
    kinds = {text(before, "type"), text(after, "type")}
    if "ExternalName" not in kinds:
        had, have = texts(before, "clusterIPs"), texts(after, "clusterIPs")
        for index, (was, now) in enumerate(zip(had, have, strict=False)):
            if was != now:
                yield field_errors.invalid(
                    f"spec.clusterIPs[{index}]", have, "may not change once set"
                )
        if had and not have:
            yield field_errors.invalid(
                "spec.clusterIPs[0]", have, "primary clusterIP can not be unset"
            )
    if kinds == {"LoadBalancer"}:
        was, now = look(before, "loadBalancerClass"), look(after, "loadBalancerClass")
        if was != now:
            yield field_errors.invalid("spec.loadBalancerClass", now, "may not change once set")
        ports = number(before, "healthCheckNodePort"), number(after, "healthCheckNodePort")
        if all(ports) and ports[0] != ports[1]:
            yield field_errors.forbidden("spec.healthCheckNodePort", "field is immutable")


AFFINITY_SECONDS = 10800


def is_external(value: Obj) -> bool:
    """Whether the Service accepts traffic from outside the cluster."""
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
    """Old clients know only `clusterIP`: `clusterIPs` follows it."""
    before, after = text(old, "clusterIP"), text(new, "clusterIP")
    if items(old, "clusterIPs") and not items(new, "clusterIPs") and before == after:
        new["clusterIPs"] = copied(old["clusterIPs"])
    if before != after and items(new, "clusterIPs") == items(old, "clusterIPs"):
        if after:
            new["clusterIPs"] = [after]
        else:
            new.pop("clusterIPs", None)


def _keep_allocated(new: Obj, old: Obj) -> None:
    """Values that the server assigned are kept if the client leaves them out."""
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
    """Removes fields that only the old type has, unless this write changes them."""
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
        validate=validate,
        validate_update=validate_update,
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
