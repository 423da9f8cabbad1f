"""The Leases of the CSI sidecars of the Kubernetes project, by which each elects its leader."""

from collections.abc import Mapping

WRITERS = ("external-provisioner", "external-attacher", "external-resizer")
"""Sidecars that do what the volume controller does."""
PREFIXES = {
    "external-provisioner": "",
    "external-attacher": "external-attacher-leader-",
    "external-resizer": "external-resizer-",
    "external-snapshotter": "external-snapshotter-leader-",
}


def sidecar_lease(sidecar: str, driver: str) -> str:
    """Returns the name of the Lease of a sidecar for this driver."""
    return f"{PREFIXES[sidecar]}{driver.replace('.', '-')}"


def sidecar_leases(driver: str) -> Mapping[str, str]:
    """Returns the sidecars that do the work of the volume controller, by their Leases."""
    return {sidecar_lease(each, driver): each for each in WRITERS}
