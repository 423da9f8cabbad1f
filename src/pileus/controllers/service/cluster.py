"""The Services of a real cluster: an informer's view, and a client to write."""

from pileus.controllers.service.patches import patch_of
from pileus.controllers.service.plan import Write, is_changed_by_others
from pileus.kube.client import Client
from pileus.kube.errors import Invalid, KubeError
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import Store
from pileus.objects.written import Written

STATUS = "status"


class ServiceReplaced(KubeError):
    """The Service was deleted and made anew: what was decided was about the old one."""


class ClusterServices:
    """Shows what was written here even before the watch brings it."""

    def __init__(self, client: Client, store: Store[Service], by_uid: str) -> None:
        self._client = client
        self._store = store
        self._by_uid = by_uid
        self._written = Written[str, Service]()
        self._versions: dict[str, str] = {}

    def service(self, uid: str) -> Service | None:
        found = self._store.by_index(self._by_uid, uid)
        return self._written.newest(uid, found[0] if found else None)

    def services(self) -> tuple[Service, ...]:
        return self._store.list()

    def is_own_write(self, old: Service, new: Service) -> bool:
        """Whether nothing is new in `new` but what we ourselves wrote last."""
        version = self._versions.get(new.metadata.uid)
        own = version == new.metadata.resource_version
        return own and not is_changed_by_others(old, new)

    def forget(self, uid: str) -> None:
        self._versions.pop(uid, None)

    async def read(self, service: Service) -> Service:
        """The Service as it is now. Errors: `ServiceReplaced`; else what the API server says."""
        metadata = service.metadata
        found = await self._client.get(SERVICES, metadata.name, namespace=metadata.namespace)
        if found.metadata.uid != metadata.uid:
            raise ServiceReplaced(f"{metadata.namespace}/{metadata.name} was made anew meanwhile")
        return self._written.note(metadata.uid, found)

    async def write(self, service: Service, write: Write) -> Service:
        """Change the Service; the answer is the Service as it is then.

        Errors: `ServiceReplaced`; `Conflict`, if the write is for this version only and there is
        a newer one; else what the API server says.
        """
        metadata = service.metadata
        try:
            written = await self._client.patch(
                SERVICES,
                metadata.name,
                patch_of(service, write),
                namespace=metadata.namespace,
                subresource=STATUS,
            )
        except Invalid as error:
            if error.is_about_uid:
                raise ServiceReplaced(
                    f"{metadata.namespace}/{metadata.name} was made anew meanwhile"
                ) from error
            raise
        self._versions[metadata.uid] = written.metadata.resource_version
        return self._written.note(metadata.uid, written)

    async def list_nodes(self) -> tuple[Node, ...]:
        """All nodes, read from the API server now."""
        return (await self._client.list(NODES)).items

    async def list_services(self) -> tuple[Service, ...]:
        """All Services, read from the API server now; those that do not decode by name and UID."""
        listed = await self._client.list(SERVICES)
        return (*listed.items, *listed.unreadable)
