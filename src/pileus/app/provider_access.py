"""What a provider gets of the cluster, and how the controllers that it brings along are run."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from pileus.app.context import ManagerContext
from pileus.app.settings import ManagerSettings
from pileus.cloud.errors import Unsupported
from pileus.cloud.interface import OwnController
from pileus.cloud.provider_context import entered
from pileus.dataclass import dataclass
from pileus.kube.access import Access as KubeAccess
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import NamespacedName
from pileus.runtime.cluster_access import KubernetesAccess
from pileus.runtime.informers import BY_UID, UID_INDEX, Informers
from pileus.runtime.supervision import Supervised
from pileus.server.health import Health
from pileus.telemetry.log import Log

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """Nodes and Services in the caches of the manager's informers."""

    shared: Informers

    def node(self, name: str) -> Node | None:
        return self.shared.of(NODES).store.get(NamespacedName("", name))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.shared.of(NODES).store.list())

    def service(self, uid: str) -> Service | None:
        return next(iter(self.shared.of(SERVICES, UID_INDEX).store.by_index(BY_UID, uid)), None)

    def services(self) -> tuple[Service, ...]:
        return tuple(self.shared.of(SERVICES, UID_INDEX).store.list())


@dataclass(frozen=True, slots=True)
class Access:
    """The `KubernetesAccess` that a provider gets when this process leads."""

    context: ManagerContext

    def client(self, identity: str) -> Client:
        return self.context.clients.controller(identity, fence=self.context.fence)

    def config(self, identity: str) -> KubeAccess:
        """Raises Unsupported in a plan or dry run: credentials would allow writes."""
        if self.context.config[ManagerSettings].dry_run:
            raise Unsupported(
                "a plan or dry run does not hand out cluster credentials, because they would "
                "allow writes; use the client that the provider is given"
            )
        return self.context.clients.access_of(identity)

    def view(self) -> View:
        return View(self.context.informers)

    def informers(self) -> Informers:
        return self.context.informers


@asynccontextmanager
async def provider_started(context: ManagerContext) -> AsyncGenerator[None]:
    """The provider's own start, before all controllers, and its end, after them.

    Raises CloudError.
    """
    start = context.cloud.leading
    async with AsyncExitStack() as stack:
        if start is not None:
            access: KubernetesAccess = Access(context)
            failed = f'cloud provider "{context.cloud.name}" could not start'
            await stack.enter_async_context(entered(failed, lambda: start(access)))
        yield


async def run_own(own: OwnController, context: ManagerContext, health: Health) -> None:
    """Run a provider's own controller until it returns or is cancelled.

    One that fails is restarted with increasing delays. Meanwhile the readiness check reports it,
    but not the liveness check: the other controllers work.
    """
    access: KubernetesAccess = Access(context)
    supervised = Supervised(own.name, lambda: own.run(access), context.random)
    check = f"{context.scope.name}-{own.name}"
    log.info("Started controller of the provider", controller=own.name)
    health.add(check, supervised.health, live=False)
    try:
        await supervised.run()
    finally:
        health.remove(check)
        log.info("Stopped controller of the provider", controller=own.name)
