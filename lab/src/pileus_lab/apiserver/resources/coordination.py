"""Leases and EndpointSlices."""

import ipaddress
from collections.abc import Iterator

from pileus_lab.apiserver import field_errors
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import AGE, NAME, NONE, Column, Resource, Rules
from pileus_lab.apiserver.tree import Obj, default, items, look, rows, text, texts

ADDRESS_TYPES = ("IPv4", "IPv6", "FQDN")
PROTOCOLS = ("TCP", "UDP", "SCTP")
MAX_PORT = 65535


def _validate_lease(value: Obj) -> Iterator[Fault]:
    duration = look(value, "spec", "leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        yield field_errors.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = look(value, "spec", "leaseTransitions")
    if isinstance(transitions, int) and transitions < 0:
        yield field_errors.invalid(
            "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
        )


LEASES = Resource(
    group="coordination.k8s.io",
    kind="Lease",
    plural="leases",
    schema="coordination.Lease",
    creates_on_update=True,
    needs_version=True,
    rules=Rules(validate=_validate_lease),
    columns=(NAME, Column("Holder", lambda o: text(o, "spec", "holderIdentity")), AGE),
)


def _default_slice(value: Obj) -> None:
    for port in rows(value, "ports"):
        default(port, name="", protocol="TCP")


def _validate_slice(value: Obj) -> Iterator[Fault]:
    kind = text(value, "addressType")
    if not kind:
        yield field_errors.required("addressType")
    elif kind not in ADDRESS_TYPES:
        yield field_errors.unsupported("addressType", kind, ADDRESS_TYPES)
    for index, endpoint in enumerate(rows(value, "endpoints")):
        yield from _endpoint_faults(endpoint, kind, f"endpoints[{index}]")
    names: set[str] = set()
    for index, port in enumerate(rows(value, "ports")):
        yield from _port_faults(port, f"ports[{index}]", names)
        names.add(text(port, "name"))


def _endpoint_faults(endpoint: Obj, kind: str, path: str) -> Iterator[Fault]:
    addresses = texts(endpoint, "addresses")
    if not addresses:
        yield field_errors.required(f"{path}.addresses", "must contain at least 1 address")
    for index, address in enumerate(addresses):
        version = {"IPv4": 4, "IPv6": 6}.get(kind)
        if version is not None and not _is_ip(address, version):
            detail = f"must be an {kind} address"
            yield field_errors.invalid(f"{path}.addresses[{index}]", address, detail)


def _port_faults(port: Obj, path: str, names: set[str]) -> Iterator[Fault]:
    if text(port, "name") in names:
        yield field_errors.duplicate(f"{path}.name", text(port, "name"))
    if text(port, "protocol") not in PROTOCOLS:
        yield field_errors.unsupported(f"{path}.protocol", text(port, "protocol"), PROTOCOLS)
    number = look(port, "port")
    if isinstance(number, int) and not 0 < number <= MAX_PORT:
        yield field_errors.invalid(f"{path}.port", number, "must be between 1 and 65535, inclusive")


def _is_ip(address: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(address).version == version
    except ValueError:
        return False


def _validate_slice_update(new: Obj, old: Obj) -> Iterator[Fault]:
    if text(new, "addressType") != text(old, "addressType"):
        yield field_errors.immutable("addressType", text(new, "addressType"))


def _ports(value: Obj) -> str:
    return ",".join(str(p.get("port", "*")) for p in rows(value, "ports")) or "<unset>"


def _endpoints(value: Obj) -> str:
    addresses = [a for e in rows(value, "endpoints") for a in texts(e, "addresses")]
    if not addresses:
        return "<unset>" if not items(value, "endpoints") else NONE
    shown, more = addresses[:3], len(addresses) - 3
    return ",".join(shown) + (f" + {more} more..." if more > 0 else "")


ENDPOINT_SLICES = Resource(
    group="discovery.k8s.io",
    kind="EndpointSlice",
    plural="endpointslices",
    schema="discovery.EndpointSlice",
    counts_generations=True,
    rules=Rules(
        default=_default_slice, validate=_validate_slice, validate_update=_validate_slice_update
    ),
    columns=(
        NAME,
        Column("AddressType", lambda o: text(o, "addressType")),
        Column("Ports", _ports),
        Column("Endpoints", _endpoints),
        AGE,
    ),
)
