"""The Services of a real cluster: an informer's view, and a client to write."""

from pileus.controllers.service.patches import patch_of
from pileus.controllers.service.plan import Write, expected
from pileus.kube.client import Client
from pileus.kube.errors import Invalid, KubeError
from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import Store
from pileus.objects.own_writes import OwnWrites, WithoutEchoes

STATUS = "status"


class ServiceReplaced(KubeError):
    """The Service was deleted and made anew: what was decided was about the old one."""


class ClusterServices:
    """Shows what was written here even before the watch brings it."""

    def __init__(self, client: Client, store: Store[Service], by_uid: str) -> None:
        self._client = client
        self._store = store
        self._by_uid = by_uid
        self._written = OwnWrites[str, Service](self._seen)

    def service(self, uid: str) -> Service | None:
        return self._written.newest(uid, self._seen(uid))

    def services(self) -> tuple[Service, ...]:
        return self._store.list()

    def without_echoes(self, handler: Handler[Service]) -> Handler[Service]:
        """The handler, told of everything that the watch brings except for our own writes."""
        return WithoutEchoes(handler, self._written, lambda service: service.metadata.uid)

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
        request = self._client.patch(
            SERVICES,
            metadata.name,
            patch_of(service, write),
            namespace=metadata.namespace,
            subresource=STATUS,
        )
        try:
            return await self._written.write(
                metadata.uid, request, lambda before: expected(before, write)
            )
        except Invalid as error:
            if error.is_about_uid:
                raise ServiceReplaced(
                    f"{metadata.namespace}/{metadata.name} was created again meanwhile"
                ) from error
            raise

    async def list_nodes(self) -> tuple[Node, ...]:
        """All nodes, read from the API server now."""
        return (await self._client.list(NODES)).items

    async def list_services(self) -> tuple[Service, ...]:
        """All Services, read from the API server now; those that do not decode by name and UID."""
        listed = await self._client.list(SERVICES)
        return (*listed.items, *listed.unreadable)

    def _seen(self, uid: str) -> Service | None:
        found = self._store.by_index(self._by_uid, uid)
        return found[0] if found else None
