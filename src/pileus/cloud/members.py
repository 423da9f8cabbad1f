"""Which facts about nodes a provider gets as members of load balancers. Pure.

A node that registers again (its Node object is created a second time, without a provider ID) keeps
its place: see `with_known_ids`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address

from pileus.cloud.abilities import Abilities
from pileus.cloud.fingerprint import usual_address
from pileus.cloud.model import NO_LABELS, AddressType, NodeRef
from pileus.dataclass import replace

KEPT = 16
"""Results that are remembered: a thousand Services share one set of a thousand members, which must
stay one object so that it is compared and hashed once."""


def given_members(members: frozenset[NodeRef], abilities: Abilities) -> frozenset[NodeRef]:
    """Returns the members as a provider with these abilities gets them.

    Nodes without a provider ID are left out if the cloud needs one. Members carry the labels that
    the provider declared, and no annotations: a change of anything else is no change of members.
    """
    return _given(members, abilities.member_labels, needs_id=abilities.members_by_provider_id)


@lru_cache(maxsize=KEPT)
def _given(
    members: frozenset[NodeRef], labels: frozenset[str], *, needs_id: bool
) -> frozenset[NodeRef]:
    return frozenset(
        replace(node, labels=_only(node.labels, labels), annotations=NO_LABELS)
        for node in members
        if node.provider_id or not needs_id
    )


def _only(labels: Mapping[str, str], keys: frozenset[str]) -> Mapping[str, str]:
    return {key: labels[key] for key in sorted(keys & labels.keys())} if keys else NO_LABELS


@lru_cache(maxsize=KEPT)
def shared_addresses(members: frozenset[NodeRef]) -> Mapping[str, tuple[str, ...]]:
    """Returns the addresses that several members have, with the names of these members.

    Only the address of each IP family counts that a load balancer would use: the first InternalIP,
    else the first ExternalIP. For a cloud that reaches members by address they are one member.
    """
    names: dict[str, list[str]] = {}
    for node in members:
        for address in _used_addresses(node):
            names.setdefault(address, []).append(node.name)
    return {address: (*sorted(found),) for address, found in names.items() if len(found) > 1}


def _used_addresses(node: NodeRef) -> Iterable[str]:
    first: dict[int, str] = {}
    for kind in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
        for each in node.addresses:
            version = _version(each.address)
            if each.type == kind and version:
                first.setdefault(version, usual_address(each.address))
    return first.values()


def _version(address: str) -> int:
    try:
        return ip_address(address).version
    except ValueError:
        return 0


def with_known_id(node: NodeRef, before: NodeRef | None) -> NodeRef:
    """Returns the node with the provider ID that the same machine had before, if it has none yet.

    A kubelet that registers its node again creates it without a provider ID. Without this, the
    load balancer would drop the member until the node is initialized. The system UUID decides
    whether it is the same machine: a new machine of the same name has no provider ID here.
    """
    if node.provider_id or before is None or not node.system_uuid:
        return node
    is_same = before.system_uuid == node.system_uuid
    return replace(node, provider_id=before.provider_id) if is_same else node
