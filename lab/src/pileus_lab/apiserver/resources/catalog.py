"""All resources of the server."""

from collections.abc import Mapping

from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources import (
    coordination,
    core,
    event,
    node,
    pod,
    rbac,
    review,
    service,
    storage,
)

ALL: tuple[Resource, ...] = (
    core.CONFIG_MAPS,
    event.EVENTS,
    core.NAMESPACES,
    node.NODES,
    storage.PERSISTENT_VOLUME_CLAIMS,
    storage.PERSISTENT_VOLUMES,
    pod.PODS,
    core.SECRETS,
    core.SERVICE_ACCOUNTS,
    service.SERVICES,
    review.SELF_REVIEWS,
    review.TOKEN_REVIEWS,
    review.LOCAL_ACCESS_REVIEWS,
    review.SELF_ACCESS_REVIEWS,
    review.SELF_RULES_REVIEWS,
    review.ACCESS_REVIEWS,
    coordination.LEASES,
    coordination.ENDPOINT_SLICES,
    event.NEW_EVENTS,
    rbac.CLUSTER_ROLE_BINDINGS,
    rbac.CLUSTER_ROLES,
    rbac.ROLE_BINDINGS,
    rbac.ROLES,
    storage.CSI_DRIVERS,
    storage.STORAGE_CLASSES,
    storage.VOLUME_ATTACHMENTS,
)


class Catalog:
    """Finds a resource by its URL."""

    def __init__(self, resources: tuple[Resource, ...] = ALL) -> None:
        self.resources = resources
        self._by_name = {(r.group, r.version, r.plural): r for r in resources}
        self._groups = _grouped(resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_name.get((group, version, plural))

    def groups(self) -> Mapping[tuple[str, str], list[Resource]]:
        """Returns the resources of each group and version, in the order of declaration."""
        return self._groups

    @property
    def namespaced(self) -> list[Resource]:
        """The stored resources with namespaces, each collection once."""
        return [r for r in self.resources if r.namespaced and "list" in r.verbs and not r.face]


def _grouped(resources: tuple[Resource, ...]) -> Mapping[tuple[str, str], list[Resource]]:
    found: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        found.setdefault((resource.group, resource.version), []).append(resource)
    return found
