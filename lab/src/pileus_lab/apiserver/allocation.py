"""Assigns cluster IPs and node ports to Services, each only once."""

import ipaddress
from collections import Counter
from dataclasses import dataclass
from random import Random

from pileus_lab.apiserver import field_errors
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resources.service import check_cluster_ips, family_of, needs_health_port
from pileus_lab.apiserver.store import Entry
from pileus_lab.apiserver.tree import Obj, branch, items, look, number, rows, text, texts, words

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SPAN = 65536
"""How many addresses of a larger network are used for random choice."""


class Unallocated(Exception):
    """The address or port is not available."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = list(faults)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The available ranges. One network per family; the first is the default family."""

    networks: tuple[Network, ...] = (ipaddress.IPv4Network("10.0.0.0/16"),)
    first_port: int = 30000
    last_port: int = 32767

    def network(self, family: str) -> Network | None:
        return next((n for n in self.networks if f"IPv{n.version}" == family), None)

    @property
    def families(self) -> list[str]:
        return [f"IPv{n.version}" for n in self.networks]


class Allocator:
    """Derives what is in use from the Services themselves; stores nothing else."""

    def __init__(self, ranges: Ranges, random: Random) -> None:
        self._ranges = ranges
        self._random = random
        self._ips: Counter[str] = Counter()
        self._ports: Counter[int] = Counter()

    def observe(self, before: Entry | None, after: Entry | None) -> None:
        """A Service changed."""
        for entry, step in ((before, -1), (after, 1)):
            if entry is None:
                continue
            value = entry.decode()
            for ip in self._addresses(value):
                self._ips[ip] += step
            for port in set(_ports(value)):
                self._ports[port] += step

    def admit(self, new: Obj, old: Obj | None) -> None:
        """Fills in addresses and ports of a new or changed Service. Raises `Unallocated`."""
        spec = branch(new, "spec")
        if text(spec, "type") == "ExternalName":
            return
        self._choose_families(spec, branch(old, "spec"))
        if text(spec, "clusterIP") != "None":
            self._allocate_ips(spec, self._addresses(old or {}))
        self._allocate_ports(new, set(_ports(old or {})))

    def _addresses(self, value: Obj) -> list[str]:
        return [ip for ip in texts(value, "spec", "clusterIPs") if ip != "None"]

    def _choose_families(self, spec: Obj, old: Obj) -> None:
        bare = text(spec, "clusterIP") == "None" and not words(spec, "selector")
        if not text(spec, "ipFamilyPolicy"):
            usual = "RequireDualStack" if bare else "SingleStack"
            spec["ipFamilyPolicy"] = text(old, "ipFamilyPolicy") or usual
        if faults := list(check_cluster_ips(spec)):
            raise Unallocated(*faults)
        is_single = text(spec, "ipFamilyPolicy") == "SingleStack"
        if is_single:
            _release_second(spec, old)
        self._check_counts(spec, is_single=is_single)
        families = texts(spec, "ipFamilies")
        ips = self._addresses({"spec": spec})
        families += [family_of(ip) for ip in ips[len(families) :]]
        if not bare:
            self._check_configured(spec, families)
        families = families or self._ranges.families[:1]
        if not is_single and len(families) == 1 and (bare or len(self._ranges.networks) > 1):
            families.append("IPv6" if families[0] == "IPv4" else "IPv4")
        spec["ipFamilies"] = families

    def _check_counts(self, spec: Obj, *, is_single: bool) -> None:
        many = (("clusterIPs", "multiple cluster IPs"), ("ipFamilies", "multiple IP families"))
        policy = text(spec, "ipFamilyPolicy")
        faults = [
            field_errors.invalid(
                "spec.ipFamilyPolicy",
                policy,
                f"must be 'RequireDualStack' or 'PreferDualStack' when {words_} are specified",
            )
            for name, words_ in many
            if is_single and len(items(spec, name)) > 1
        ]
        if faults:
            raise Unallocated(*faults)

    def _check_configured(self, spec: Obj, families: list[str]) -> None:
        faults: list[Fault] = []
        policy = text(spec, "ipFamilyPolicy")
        if policy == "RequireDualStack" and len(self._ranges.networks) == 1:
            detail = "this cluster is not configured for dual-stack services"
            faults.append(field_errors.invalid("spec.ipFamilyPolicy", policy, detail))
        faults += [
            field_errors.invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")
            for i, family in enumerate(families)
            if self._ranges.network(family) is None
        ]
        if faults:
            raise Unallocated(*faults)

    def _allocate_ips(self, spec: Obj, owned: list[str]) -> None:
        ips = texts(spec, "clusterIPs")
        for ip in ips:
            if ip not in owned:
                self._check_ip(ip, ips)
        for family in texts(spec, "ipFamilies")[len(ips) :]:
            ips.append(self._free_ip(family))
        spec["clusterIPs"] = ips
        spec["clusterIP"] = ips[0]

    def _check_ip(self, ip: str, ips: list[str]) -> None:
        network = self._ranges.network(family_of(ip))
        if network is None or ipaddress.ip_address(ip) not in network:
            detail = (
                f"failed to allocate IP {ip}: the provided network does not match the current range"
            )
            raise Unallocated(field_errors.invalid("spec.clusterIPs", ips, detail))
        if self._ips[ip]:
            detail = f"failed to allocate IP {ip}: provided IP is already allocated"
            raise Unallocated(field_errors.invalid("spec.clusterIPs", ips, detail))

    def _free_ip(self, family: str) -> str:
        network = self._ranges.network(family)
        if network is None:
            raise Unallocated(field_errors.invalid("spec.ipFamilies", [family], "not configured"))
        size = min(network.num_addresses, SPAN) - 2
        start = self._random.randrange(size)
        for offset in range(size):
            ip = str(network[1 + (start + offset) % size])
            if not self._ips[ip]:
                return ip
        detail = "failed to allocate IP: range is full"
        raise Unallocated(field_errors.invalid("spec.clusterIPs", [""], detail))

    def _allocate_ports(self, value: Obj, owned: set[int]) -> None:
        spec = branch(value, "spec")
        given: dict[int, set[str]] = {}
        if text(spec, "type") in {"NodePort", "LoadBalancer"}:
            self._check_ports(spec, owned, given)
            if look(spec, "allocateLoadBalancerNodePorts") is not False:
                self._fill_ports(spec, given)
        if needs_health_port(value) and not number(spec, "healthCheckNodePort"):
            spec["healthCheckNodePort"] = self._free_port(set(given))

    def _check_ports(self, spec: Obj, owned: set[int], given: dict[int, set[str]]) -> None:
        for index, port in enumerate(rows(spec, "ports")):
            wanted = number(port, "nodePort")
            if not wanted:
                continue
            path = f"spec.ports[{index}].nodePort"
            first, last = self._ranges.first_port, self._ranges.last_port
            if not first <= wanted <= last:
                detail = (
                    "provided port is not in the valid range. The range of valid ports is "
                    f"{first}-{last}"
                )
                raise Unallocated(field_errors.invalid(path, wanted, detail))
            if wanted not in owned and self._ports[wanted]:
                detail = "provided port is already allocated"
                raise Unallocated(field_errors.invalid(path, wanted, detail))
            given.setdefault(wanted, set()).add(text(port, "protocol"))

    def _fill_ports(self, spec: Obj, given: dict[int, set[str]]) -> None:
        """One number can serve the same port in several protocols."""
        shared = {number(p, "port"): number(p, "nodePort") for p in rows(spec, "ports")}
        for port in rows(spec, "ports"):
            if number(port, "nodePort"):
                continue
            node_port = shared.get(number(port, "port"), 0)
            if not node_port or text(port, "protocol") in given.get(node_port, ()):
                node_port = self._free_port(set(given))
            port["nodePort"] = shared[number(port, "port")] = node_port
            given.setdefault(node_port, set()).add(text(port, "protocol"))

    def _free_port(self, taken: set[int]) -> int:
        first, size = self._ranges.first_port, self._ranges.last_port - self._ranges.first_port + 1
        start = self._random.randrange(size)
        for offset in range(size):
            port = first + (start + offset) % size
            if not self._ports[port] and port not in taken:
                return port
        detail = "failed to allocate a nodePort: range is full"
        raise Unallocated(field_errors.invalid("spec.ports[0].nodePort", 0, detail))


def _ports(value: Obj) -> list[int]:
    spec = branch(value, "spec")
    ports = [number(p, "nodePort") for p in rows(spec, "ports")]
    return [p for p in (*ports, number(spec, "healthCheckNodePort")) if p]


def _release_second(spec: Obj, old: Obj) -> None:
    """Back to one family: the second address is removed unless the client changed it."""
    for name in ("clusterIPs", "ipFamilies"):
        if items(old, name) == items(spec, name):
            spec[name] = items(spec, name)[:1]
