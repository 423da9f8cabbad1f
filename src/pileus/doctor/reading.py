"""Reads a cluster and its clouds for the doctor. Nothing is changed.

    API server ──▶ objects, reviews of rights ──┐
    clouds ──────▶ lookups, their own checks ───┴──▶ Observation

Each part is read on its own: one that fails becomes an `Unread`, and the others are kept. Reviews
are the only requests that are not reads; the API server answers them and stores nothing.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pileus.admission.settings import WebhookSettings
from pileus.app.errors import CHECK_CA, CommandFailed
from pileus.app.migration import DEFAULT, MigrationError, read_migration
from pileus.app.registry import AnyDescriptor
from pileus.app.rights import controller_rights, process_rights, uses_own_accounts
from pileus.app.settings import TABLE, LeaderMigrationSettings, ManagerSettings, build_config
from pileus.app.startup import World, connections
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.volume.descriptor import VOLUME
from pileus.dataclass import dataclass
from pileus.doctor.cloud_reading import Sought, observe_clouds, selected_clouds
from pileus.doctor.installation import Installation, installation_of
from pileus.doctor.observation import (
    Expected,
    Grant,
    Observation,
    Read,
    Reviewed,
    Rights,
    Server,
    Unread,
    is_account,
)
from pileus.doctor.part import reading, right
from pileus.doctor.records import (
    ACCESS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NODES,
    OWN_ACCESS,
    PODS,
    REVIEWS,
    ROLE_BINDINGS,
    ROLES,
    SELF_REVIEWS,
    SERVICES,
    Binding,
    EndpointSlice,
    Event,
    Lease,
    Pod,
    ResourceAttributes,
    Review,
    ReviewSpec,
    Rule,
    SelfReview,
    UrlAttributes,
    Version,
)
from pileus.doctor.volume_reading import read_sidecars, read_storage, read_volumes
from pileus.kube.client import EVERYTHING, Client, Listed, Selector
from pileus.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from pileus.kube.model.admissionregistration_v1 import (
    MUTATING,
    VALIDATING,
    WebhookConfiguration,
)
from pileus.kube.model.core_v1 import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from pileus.kube.model.meta import KubeObject, Resource
from pileus.kube.settings import ClientSettings
from pileus.kube.transport import Request, reads
from pileus.objects.rights import KUBE_SYSTEM, Right
from pileus.objects.settings import ClusterSettings
from pileus.runtime.settings import LeaderElectionSettings
from pileus.settings.config import Config
from pileus.settings.flags import FlagError
from pileus.settings.sources import gather
from pileus.version import INSTALLED, PART_OF, PROGRAM

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)

OURS = f"{PART_OF}=pileus"
BUILT_IN = "kubernetes.io/bootstrapping"
"""Label of the bindings that an API server creates by itself."""
READS_ROLES = Right(
    purpose="",
    verbs=("get", "list"),
    resources=("clusterrolebindings", "rolebindings", "clusterroles", "roles"),
    group=CLUSTER_ROLES.group,
)
SERVICE_NAME = "kubernetes.io/service-name"
REVIEW_PATHS = frozenset(resource.path() for resource in REVIEWS)


def reads_and_reviews(request: Request) -> bool:
    """Permits reads, and the questions about users and rights."""
    return reads(request) or (request.method == "POST" and request.path in REVIEW_PATHS)


async def observe(
    config: Config, world: World, account: str = "", flags: tuple[str, ...] = ()
) -> Observation:
    """Reads everything that the checks need. Raises CommandFailed if no API server is configured.

    `account` is the namespace and name of the manager's service account; empty: that of the
    installed manager. `flags` are those of the manager that the doctor was given.
    """
    rights = config
    config = config.having(replace(config[ManagerSettings], dry_run=True))
    expected = expectation(config, world, account or Expected().account, flags)
    metrics = world.metrics()
    async with connections(config, world, metrics, permits=reads_and_reviews) as clients:
        reader = Reader(clients.main("doctor"), expected)
        server = await _server(config, world)
        now = world.times.wall.now()
        if isinstance(server, Unread):
            seen = _unreadable(expected, now, server)
        else:
            found = await reader.installations()
            running = next(iter(found), None) if isinstance(found, tuple) else None
            if running and not account:
                reader = replace(reader, expected=replace(expected, account=running.account))
            rights = (running and _settings_of(running)) or rights
            registers = replace(reader.expected, webhooks=_webhook_kinds(rights))
            reader = replace(reader, expected=registers)
            needed = _needed(rights, world, reader.expected.account)
            seen = await reader.read(server, needed, now)
            grants = await reader.grants(needed, _role_names(rights, world))
            seen = replace(seen, installations=found, grants=grants)
    return replace(seen, clouds=await observe_clouds(config, world, _sought(seen)))


def _sought(seen: Observation) -> Sought:
    """Returns what the clouds are asked about."""
    return Sought(
        nodes=() if isinstance(seen.nodes, Unread) else seen.nodes,
        volumes=() if isinstance(seen.volumes, Unread) else seen.volumes,
        cluster="" if isinstance(seen.cluster_id, Unread) else seen.cluster_id,
        now=seen.server_now,
    )


def _settings_of(running: Installation) -> Config | None:
    """Returns the settings of the installed manager; None if they are not known here."""
    if running.reads_files:
        return None
    try:
        return build_config(gather(TABLE, PROGRAM, running.arguments, running.variables).values)
    except FlagError:
        return None  # another version, with other flags


def expectation(
    config: Config, world: World, account: str, flags: tuple[str, ...] = ()
) -> Expected:
    election = config[LeaderElectionSettings]
    enabled = _enabled(config, world)
    names = {election.resource_name, *_migration_lease(config)}
    return Expected(
        account=account,
        lease_namespace=election.resource_namespace,
        lease_name=election.resource_name,
        lease_names=frozenset(names),
        elects=election.enabled,
        cluster_id=config[ClusterSettings].id,
        providers=tuple(choice.provider for choice in selected_clouds(config)),
        initializes=any(each.names is NODE for each in enabled),
        serves_volumes=any(each.names is VOLUME for each in enabled),
        flags=flags,
    )


def _webhook_kinds(config: Config) -> frozenset[str]:
    settings = config[WebhookSettings]
    is_served = settings.serving.port and not config[ManagerSettings].dry_run
    return frozenset(each.effect.value for each in settings.chosen() if is_served)


def _enabled(config: Config, world: World) -> tuple[AnyDescriptor, ...]:
    return world.controllers.enabled(config[ManagerSettings].controllers)


def _migration_lease(config: Config) -> tuple[str, ...]:
    """Returns the name of the second Lease; nothing without leader migration."""
    migration = config[LeaderMigrationSettings]
    if not migration.enabled:
        return ()
    if not migration.config_file:
        return (DEFAULT.leader_name,)
    try:
        return (read_migration(Path(migration.config_file)).leader_name,)
    except MigrationError as error:
        raise CommandFailed(str(error)) from error


Needed = tuple[str, Right]
"""A service account, as `namespace/name`, and a right that it needs."""


def _needed(config: Config, world: World, account: str) -> tuple[Needed, ...]:
    """Returns the rights that the manager's accounts need with these flags."""
    active = [each for each in _enabled(config, world) if each.rights(config[each.settings])]
    parts = process_rights(config, active, *_migration_lease(config)).values()
    found = [(account, each) for part in parts for each in part]
    for controller in active:
        own = f"{KUBE_SYSTEM}/{controller.names.identity}"
        user = own if uses_own_accounts(config) else account
        found += [(user, each) for each in controller_rights(controller, config)]
    return tuple(dict.fromkeys(found))


def _role_names(config: Config, world: World) -> frozenset[str]:
    """Returns the names of the roles that the manager has with these flags."""
    active = [each for each in _enabled(config, world) if each.rights(config[each.settings])]
    parts = process_rights(config, active, *_migration_lease(config))
    suffixes = (*parts, *(each.names.canonical for each in active))
    return frozenset(f"{INSTALLED}:{suffix}" if suffix else INSTALLED for suffix in suffixes)


async def _server(config: Config, world: World) -> Read[Server]:
    """Asks the API server for its version, and reads its clock from the answer."""
    access = world.access(config[ClientSettings], world.environ)
    now = world.times.wall.now
    headers = {"Accept": "application/json"}
    request = Request(method="GET", path="/version", headers=headers, timeout=10.0)
    try:
        async with world.connect(access) as transport:
            began = now()
            async with transport.send(request) as reply:
                ended = now()
                body, date = await reply.read(), reply.headers.get("Date", "")
                status = reply.status
            host = transport.host
    except KubeError as error:
        if isinstance(error, Unreachable) and error.untrusted:
            return Unread("API server", str(error), fix=CHECK_CA)
        return unreachable(str(error))
    if status != 200:  # noqa: PLR2004 -- HTTP's own number
        why = f"GET /version: {status}. {access.refused}".rstrip(". ")
        return unreachable(why)
    try:
        version = msgspec.json.decode(body, type=Version).git_version
    except msgspec.DecodeError:
        return unreachable(f"GET /version: {host} does not answer like an API server")
    return Server(host, version, _ahead(date, began, ended))


def unreachable(why: str) -> Unread:
    fix = "kubectl cluster-info   # check address, network and credentials of the kubeconfig"
    return Unread("API server", why, fix=fix)


def _ahead(date: str, began: datetime, ended: datetime) -> float | None:
    """Returns the seconds by which a server is ahead, from its header Date; None if it has none.

    The header counts whole seconds, and the answer was made some time during the request.
    """
    try:
        theirs = parsedate_to_datetime(date)
    except ValueError:
        return None
    if theirs > ended:
        return (theirs - ended).total_seconds()
    latest = theirs + timedelta(seconds=1)
    return min((latest - began).total_seconds(), 0.0)


def _unreadable(expected: Expected, now: datetime, part: Unread) -> Observation:
    return Observation(
        expected=expected,
        now=now,
        server=part,
        rights=part,
        cluster_id=part,
        lease=part,
        leases=part,
        nodes=part,
        services=part,
        pods=part,
        lease_events=part,
        node_events=part,
        webhooks=part,
        endpoints=part,
        storage=part,
        installations=part,
        grants=part,
    )


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the cluster."""

    client: Client
    expected: Expected

    async def read(self, server: Server, needed: tuple[Needed, ...], now: datetime) -> Observation:
        where, name = self.expected.lease_namespace, self.expected.lease_name
        user = await self._user()
        async with asyncio.TaskGroup() as group:

            def part(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
                return group.create_task(work)

            rights = part(self._rights(user, needed))
            identity = part(self._cluster_id())
            lease = part(self._lease(where, name))
            leases = part(self._list(LEASES, where))
            nodes, services = part(self._list(NODES)), part(self._list(SERVICES))
            pods = part(self._pods())
            about_lease = part(self._events(where, "involvedObject.kind=Lease"))
            about_nodes = part(self._events("default", "involvedObject.kind=Node,type=Warning"))
            webhooks = part(self._webhooks())
            storage = part(read_storage(self.client))
        hooks, stored = webhooks.result(), storage.result()
        return Observation(
            expected=self.expected,
            now=now,
            user=user,
            server=server,
            rights=rights.result(),
            cluster_id=identity.result(),
            lease=lease.result(),
            leases=leases.result(),
            nodes=nodes.result(),
            services=services.result(),
            pods=pods.result(),
            lease_events=about_lease.result(),
            node_events=about_nodes.result(),
            webhooks=hooks,
            endpoints=await self._endpoints(hooks),
            storage=stored,
            volumes=await read_volumes(self.client, stored),
            sidecars=await read_sidecars(self.client, stored),
        )

    async def installations(self) -> Read[tuple[Installation, ...]]:
        """Returns the workloads that run the manager; the first one has the expected account."""
        found: list[Installation] = []
        for resource in (DEPLOYMENTS, DAEMON_SETS):
            work = _served(self.client.list(resource, selector=Selector(labels=OURS)))
            needed = right("list", DEPLOYMENTS, also=(DAEMON_SETS,))
            listed = await reading("Deployments and DaemonSets", needed, work)
            if isinstance(listed, Unread):
                return listed
            for each in listed:
                made = installation_of(msgspec.structs.replace(each, kind=resource.kind))
                if made is not None:
                    found.append(await self._with_maps(made))
        expected = self.expected.account
        return tuple(sorted(found, key=lambda each: each.account != expected))

    async def _with_maps(self, found: Installation) -> Installation:
        """Returns it with the variables of its ConfigMaps, as far as they can be read."""
        variables = dict(found.variables)
        for name in found.maps:
            work = self.client.get(CONFIG_MAPS, name, namespace=found.namespace)
            read = await reading(f"ConfigMap {name}", right("get", CONFIG_MAPS), work)
            if not isinstance(read, Unread):
                variables = (read.data or {}) | variables
        return replace(found, variables=variables)

    async def grants(
        self, needed: tuple[Needed, ...], current: frozenset[str]
    ) -> Read[tuple[Grant, ...]]:
        """Returns the bindings of the manager's accounts, except those of Kubernetes itself."""
        by_account: dict[str, list[Right]] = {}
        for account, each in needed:
            by_account.setdefault(account, []).append(each)
        found: list[Grant] = []
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            work = _served(self.client.list(resource))
            listed = await reading("roles and their bindings", READS_ROLES, work)
            if isinstance(listed, Unread):
                return listed
            for each in listed:
                if (each.metadata.labels or {}).get(BUILT_IN):
                    continue
                accounts = [one for one in by_account if _binds(each, one)]
                rules = await self._rules(each) if accounts else ()
                if isinstance(rules, Unread):
                    return rules
                binding = msgspec.structs.replace(each, kind=resource.kind)
                is_current = binding.metadata.name in current
                found += [
                    Grant(one, binding, rules, tuple(by_account[one]), is_current)
                    for one in accounts
                ]
        return tuple(found)

    async def _rules(self, binding: Binding) -> Read[tuple[Rule, ...]]:
        """Returns the rules of the role that is bound; none if there is no such role."""
        ref, namespace = binding.role_ref, binding.metadata.namespace
        kind, where = (CLUSTER_ROLES, "") if ref.kind == "ClusterRole" else (ROLES, namespace)

        async def get() -> tuple[Rule, ...]:
            try:
                return (await self.client.get(kind, ref.name, namespace=where)).rules or ()
            except NotFound:
                return ()

        return await reading("roles and their bindings", READS_ROLES, get())

    async def _list(
        self, resource: Resource[K], namespace: str = "", selector: Selector = EVERYTHING
    ) -> Read[tuple[K, ...]]:
        where = f" in {namespace}" if namespace else ""
        work = self.client.list(resource, namespace=namespace, selector=selector)
        needed = right("list", resource, namespace)
        found = await reading(f"{resource.plural}{where}", needed, work)
        return found if isinstance(found, Unread) else (*found.items, *found.unreadable)

    async def _user(self) -> str:
        """Returns the user of the doctor; empty if the API server does not say."""
        try:
            found = await self.client.create(SELF_REVIEWS, SelfReview())
        except KubeError:
            return ""
        return found.status.user_info.username if found.status and found.status.user_info else ""

    async def _cluster_id(self) -> Read[str]:
        if self.expected.cluster_id:
            return self.expected.cluster_id

        async def uid() -> str:
            return (await self.client.get(NAMESPACES, KUBE_SYSTEM)).metadata.uid

        return await reading("namespace kube-system", right("get", NAMESPACES), uid())

    async def _lease(self, namespace: str, name: str) -> Read[Lease | None]:
        async def get() -> Lease | None:
            try:
                return await self.client.get(LEASES, name, namespace=namespace)
            except NotFound:
                return None

        return await reading(f"Lease {namespace}/{name}", right("get", LEASES, namespace), get())

    async def _pods(self) -> Read[tuple[Pod, ...]]:
        spaces = {self.expected.lease_namespace, self.expected.account.partition("/")[0]}
        found: list[Pod] = []
        for space in sorted(spaces):
            pods = await self._list(PODS, space)
            if isinstance(pods, Unread):
                return pods
            found += pods
        return tuple(found)

    async def _events(self, namespace: str, fields: str) -> Read[tuple[Event, ...]]:
        return await self._list(EVENTS, namespace, Selector(fields=fields))

    async def _webhooks(self) -> Read[tuple[WebhookConfiguration, ...]]:
        found: list[WebhookConfiguration] = []
        for resource in (VALIDATING, MUTATING):
            work = _served(self.client.list(resource))
            needed = right("list", VALIDATING, also=(MUTATING,))
            listed = await reading("webhook configurations", needed, work)
            if isinstance(listed, Unread):
                return listed
            found += [msgspec.structs.replace(each, kind=resource.kind) for each in listed]
        return tuple(found)

    async def _endpoints(
        self, webhooks: Read[tuple[WebhookConfiguration, ...]]
    ) -> Read[Mapping[str, int]]:
        """Returns how many endpoints are ready, for each Service that a webhook names."""
        if isinstance(webhooks, Unread):
            return replace(webhooks, missing=webhooks.missing and right("list", ENDPOINT_SLICES))
        ready: dict[str, int] = {}
        for each in webhooks:
            for hook in each.webhooks or ():
                service = hook.client_config.service
                if service is None or f"{service.namespace}/{service.name}" in ready:
                    continue
                selector = Selector(labels=f"{SERVICE_NAME}={service.name}")
                slices = await self._list(ENDPOINT_SLICES, service.namespace, selector)
                if isinstance(slices, Unread):
                    return slices
                ready[f"{service.namespace}/{service.name}"] = sum(map(_ready, slices))
        return ready

    async def _rights(self, user: str, needed: tuple[Needed, ...]) -> Read[Rights]:
        manager = self.expected.account

        async def review() -> Rights:
            if user != user_of(manager) and not await self._has_account(manager):
                return Rights(manager, exists=False)
            asked = [one for account, each in needed for one in _questions(account, each)]
            answers = await self._answers(user, asked)
            own = sorted({account for account, _ in needed} - {manager})
            return Rights(
                manager,
                exists=True,
                missing=tuple([one for one in own if not await self._has_account(one)]),
                reviews=tuple(
                    replace(question, is_allowed=answer)
                    for (question, _), answer in zip(asked, answers, strict=True)
                ),
            )

        return await reading(f"rights of {manager}", right("create", ACCESS), review())

    async def _answers(self, user: str, asked: Sequence["Question"]) -> Sequence[bool]:
        """Asks side by side. Raises the first error."""
        try:
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(self._may(user, *question)) for question in asked]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [answer.result() for answer in answers]

    async def _has_account(self, account: str) -> bool:
        namespace, _, name = account.partition("/")
        try:
            await self.client.get(SERVICE_ACCOUNTS, name, namespace=namespace)
        except NotFound:
            return False
        except Forbidden:
            return True  # its rights can be reviewed all the same
        return True

    async def _may(
        self, user: str, question: Reviewed, asked: ResourceAttributes | UrlAttributes
    ) -> bool:
        """Asks whether an account may do something; about the own account, as that account."""
        is_own = user == user_of(question.account)
        spec = ReviewSpec() if is_own else _as_account(question.account)
        about = (
            {"resource_attributes": asked}
            if isinstance(asked, ResourceAttributes)
            else {"non_resource_attributes": asked}
        )
        review = Review(spec=msgspec.structs.replace(spec, **about))
        answer = await self.client.create(OWN_ACCESS if is_own else ACCESS, review)
        return bool(answer.status and answer.status.allowed)


def _binds(binding: Binding, account: str) -> bool:
    """Whether a binding applies to the account, by its name or as one of its groups."""
    groups = {"system:serviceaccounts", f"system:serviceaccounts:{account.partition('/')[0]}"}
    return any(
        is_account(each, account) or (each.kind == "Group" and each.name in groups)
        for each in binding.subjects or ()
    )


async def _served(listing: Awaitable[Listed[K]]) -> tuple[K, ...]:
    """Returns the items; none if the API server does not have the resource."""
    try:
        return (await listing).items
    except NotFound:
        return ()


def _ready(piece: EndpointSlice) -> int:
    return sum(
        each.conditions is None or each.conditions.ready is not False
        for each in piece.endpoints or ()
    )


def user_of(account: str) -> str:
    """Returns the user name of a service account, given as `namespace/name`."""
    return f"system:serviceaccount:{account.replace('/', ':', 1)}"


def _as_account(account: str) -> ReviewSpec:
    namespace = account.partition("/")[0]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return ReviewSpec(user=user_of(account), groups=(*groups, "system:authenticated"))


Question = tuple[Reviewed, ResourceAttributes | UrlAttributes]


def _questions(account: str, needed: Right) -> Iterator[Question]:
    def about(verb: str, resource: str, name: str = "") -> Reviewed:
        return Reviewed(account, needed, verb, resource, name)

    for verb in needed.verbs:
        for url in needed.urls:
            yield about(verb, url), UrlAttributes(path=url, verb=verb)
        for resource, name in product(needed.resources, needed.names or ("",)):
            plural, _, below = resource.partition("/")
            attributes = ResourceAttributes(
                namespace=needed.namespace,
                verb=verb,
                group=needed.group,
                resource=plural,
                subresource=below,
                name=name,
            )
            yield about(verb, resource, name), attributes
