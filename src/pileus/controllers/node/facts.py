"""What the cloud says of a node's machine, as far as it can be written to the node. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pileus.cloud.errors import CloudError
from pileus.cloud.model import Instance, no_labels
from pileus.controllers.node.addresses import is_of_unknown_type, usable
from pileus.controllers.node.labels import additional, standard
from pileus.kube.model.core_v1 import NodeAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    provider_id: str = ""
    addresses: tuple[NodeAddress, ...] = ()
    standard_labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Type, zone and region, under their stable and their deprecated keys."""
    additional_labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    bad_addresses: tuple[str, ...] = ()
    """What the cloud gave as addresses and is none, told for humans; left out above."""
    unknown_addresses: tuple[str, ...] = ()
    """Addresses of types that Kubernetes does not define, for humans; left out above."""
    bad_labels: tuple[str, ...] = ()
    """Likewise what cannot be a label."""


def examine(instance: Instance) -> Facts:
    """Keep what Kubernetes accepts of an instance, and complain about the rest.

    Errors: `CloudError`, if its provider ID is none.
    """
    _check_provider_id(instance.provider_id)
    unknown = tuple(filter(is_of_unknown_type, instance.addresses))
    addresses, bad_addresses = usable(each for each in instance.addresses if each not in unknown)
    standard_labels, bad_standard = standard(instance)
    additional_labels, bad_additional = additional(instance)
    return Facts(
        provider_id=instance.provider_id,
        addresses=addresses,
        standard_labels=standard_labels,
        additional_labels=additional_labels,
        bad_addresses=bad_addresses,
        unknown_addresses=tuple(
            f"{each.address} is of type {each.type}, which Kubernetes does not define"
            for each in unknown
        ),
        bad_labels=bad_standard + bad_additional,
    )


def _check_provider_id(value: object) -> None:
    if not isinstance(value, str):
        raise CloudError(
            f"the provider gave {value!r} as a provider ID, which must be text; "
            "this is a bug in it, report it to its authors"
        )
