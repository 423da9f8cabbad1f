"""Write docs/reference/openstack.md from the provider's declarations and its text beside this file.

A line `<!-- NAME -->` of the text is replaced by the table of that name.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from tools.reference_page import write

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Wish
from pileus.providers.openstack import floating_ip, security_group
from pileus.providers.openstack.annotations import CLASS, ENABLE_HEALTH_MONITOR, OPTIONS
from pileus.providers.openstack.balancers import ABILITIES
from pileus.providers.openstack.config import (
    CLASS_SECTION,
    SECTIONS,
    Key,
    Kind,
    LoadBalancerClass,
    keys_of,
)
from pileus.providers.openstack.desired import Desired, Setup, desire
from pileus.providers.openstack.instances import STATES
from pileus.providers.openstack.marks import tags_of
from pileus.providers.openstack.server_lookup import FEW
from pileus.settings.go_duration import render_duration

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "openstack.md"
TEXT = Path(__file__).with_suffix(".md")


def page() -> str:
    text = TEXT.read_text(encoding="utf-8")
    for name, table in tables().items():
        text = text.replace(f"<!-- {name} -->\n", table)
    return text


def tables() -> Mapping[str, str]:
    return {
        "CONFIG": "\n".join(_sections()),
        "ANNOTATIONS": _annotations(),
        "NAMES": _names(),
        "SERVER STATES": _server_states(),
        "REQUESTS": _requests(),
    }


def _sections() -> Iterator[str]:
    for name, section in SECTIONS.items():
        yield f"### [{name}]\n\n{_keys(section)}"
        if issubclass(section, LoadBalancerClass):
            yield (
                f'### [{CLASS_SECTION} "NAME"]\n\n'
                "Networks for Services with the annotation "
                f"`{CLASS.name}: NAME`. Any number of classes.\n\n"
                f"{_keys(LoadBalancerClass)}"
            )


def _keys(section: type) -> str:
    rows = (
        (f"`{key.name}`", _kind(key), _default(key), key.description) for key in keys_of(section)
    )
    return table(("key", "type", "default", "meaning"), rows)


def _kind(key: Key) -> str:
    if key.known is not None and key.kind is not Kind.FLAG:
        return ", ".join(f"`{each}`" for each in key.known.values)
    if key.bounds is not None:
        return f"{key.kind}, {key.bounds.least:g} to {key.bounds.most:g}"
    return f"{key.kind} (repeat the key)" if key.kind is Kind.LIST else str(key.kind)


def _default(key: Key) -> str:
    match key.default:
        case bool():
            return f"`{str(key.default).lower()}`"
        case float():
            return f"`{render_duration(key.default)}`"
        case _:
            return f"`{key.default}`" if key.default not in {"", ()} else ""


def _annotations() -> str:
    rows = (
        (code(each.name), each.kind.name, each.on_change.partition(":")[0], each.text)
        for each in OPTIONS
    )
    return table(("name", "type", "when changed", "meaning"), rows)


def _example() -> Desired:
    """Returns what is created for a Service with one port."""
    spec = BalancerSpec(
        listeners=frozenset({Listener(port=80, node_port=30080)}), members=frozenset()
    )
    wish = Wish(
        owner=Owner("CLUSTER-ID", "UID"),
        spec=spec,
        namespace="NAMESPACE",
        service="SERVICE",
        options={ENABLE_HEALTH_MONITOR.name: "true"},
    )
    return desire(wish, spec, Setup(cluster_name="CLUSTER"))


def _names() -> str:
    made = _example()
    (port,) = made.ports
    names = ("NAMESPACE", "SERVICE", "CLUSTER")
    monitor = port.monitor.name if port.monitor else ""
    rows = (
        ("load balancer", made.name, made.description, (*made.tags, made.created_tag)),
        ("listener", port.listener_name, "", port.tags),
        ("pool", port.pool_name, "", cast("list[str]", port.pool_body()["tags"])),
        ("health monitor", monitor, "", ()),
        ("member", "NODE", "", ()),
        (
            "security group",
            security_group.name_of(made.owner, "NAMESPACE", "SERVICE"),
            security_group.description_of(*names),
            tags_of(made.owner),
        ),
        ("floating IP", "", floating_ip.description_of(*names), tags_of(made.owner)),
    )
    return table(
        ("object", "name", "description", "tags"),
        ((kind, code(name), code(text), code(*tags)) for kind, name, text, tags in rows),
    )


def code(*texts: str) -> str:
    return ", ".join(
        text if text.islower() and " " in text else f"`{text}`" for text in texts if text
    )


def _server_states() -> str:
    by_state: dict[str, list[str]] = {}
    for status, state in STATES.items():
        by_state.setdefault(state.value, []).append(f"`{status}`")
    return table(
        ("state", "status of the server"), ((s, ", ".join(all_)) for s, all_ in by_state.items())
    )


def _requests() -> str:
    limits = ABILITIES.limits
    rows = (
        (
            "all calls of the manager",
            f"{limits.per_second:g} per second, bursts of {limits.burst}, {limits.at_once} at once",
        ),
        (f"lookup of up to {FEW} nodes", "one for each, and the ports of all"),
        ("lookup of more nodes", "a list of the servers of the project, and their ports"),
        (
            "check of unchanged load balancers",
            "lists of load balancers, pools and floating IPs for all; after a start, listeners",
        ),
        (
            "full check of a load balancer, every 10 minutes",
            "also its listeners, and members and monitor of each pool",
        ),
        ("load balancers that Octavia is working on", "one list for all of them"),
        (
            "new load balancer",
            "one with all parts, two for its floating IP; one for tags at the first full check",
        ),
        ("nodes join or leave", "one for each port of a Service"),
        ("routes of all nodes", "one, and one for the port of each node"),
    )
    return table(("operation", "requests"), rows)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a Markdown table."""
    lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    body = "".join(f"{line}\n".replace("|  |", "| |") for line in lines)
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n{body}"


if __name__ == "__main__":
    write(PAGE, page())
