"""The rights that a manager needs: those of its controllers, and those of the process itself.

They depend on the flags: what is turned off needs no right.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pileus.admission.names import NAME as WEBHOOK_NAME
from pileus.admission.names import RESIZE
from pileus.admission.settings import WebhookSettings
from pileus.app.migration import DEFAULT
from pileus.app.registry import AnyDescriptor
from pileus.app.settings import LeaderMigrationSettings, ManagerSettings
from pileus.kube.settings import ClientSettings
from pileus.objects.rights import KUBE_SYSTEM, Right, events
from pileus.objects.settings import ClusterSettings
from pileus.runtime.settings import LeaderElectionSettings
from pileus.server.settings import ServerSettings
from pileus.settings.config import Config

LEADER_ELECTION, TOKENS = "leader-election", "tokens"
"""Names of roles."""
CLIENT_AUTHORITIES = "extension-apiserver-authentication"


def process_rights(
    config: Config, controllers: Iterable[AnyDescriptor], migration_lease: str = DEFAULT.leader_name
) -> dict[str, tuple[Right, ...]]:
    """Returns what the manager's own account needs to run `controllers`, by the role's name.

    The main role has the empty name; a dry run has no other. `migration_lease` is the name of the
    second Lease, used with --enable-leader-migration.
    """
    enabled = tuple(controllers)
    main = (
        *_informers(enabled),
        _events(config[ManagerSettings]),
        *_secure_port(config[ServerSettings]),
        Right(
            purpose="Asked at the start until the API server is healthy.",
            urls=("/healthz",),
            verbs=("get",),
        ),
        *_cluster_id(config[ClusterSettings]),
        *_webhooks(config),
    )
    if config[ManagerSettings].dry_run:
        return {"": main}
    return {
        "": main,
        LEADER_ELECTION: tuple(_leases(config, migration_lease)),
        TOKENS: tuple(_tokens(config[ClientSettings], enabled)),
    }


def controller_rights(controller: AnyDescriptor, config: Config) -> tuple[Right, ...]:
    """Returns the rights of a controller; with --dry-run, those that its plan needs."""
    rights = controller.rights(config[controller.settings])
    if not config[ManagerSettings].dry_run:
        return rights
    return tuple(replace(right, verbs=right.planning) for right in rights if right.planning)


def uses_own_accounts(config: Config) -> bool:
    """Returns whether controllers use accounts of their own; a dry run requests no tokens."""
    return config[ClientSettings].own_service_accounts and not config[ManagerSettings].dry_run


def _events(manager: ManagerSettings) -> Right:
    if manager.dry_run:
        return events("Events about planned changes. `patch` counts repeated events.")
    return Right(purpose="Events about the Lease.", resources=("events",), verbs=("create",))


def _informers(enabled: Iterable[AnyDescriptor]) -> Iterator[Right]:
    for kind in dict.fromkeys(kind for each in enabled for kind in each.kinds):
        yield Right(
            purpose=(
                f"The informer of {kind.plural}. Most API servers stream the list through the "
                "watch; `list` is for those that do not."
            ),
            group=kind.group,
            resources=(kind.plural,),
            verbs=("list", "watch"),
        )


def _secure_port(server: ServerSettings) -> Iterator[Right]:
    if not server.serving.port:
        return
    yield Right(
        purpose="The secure port asks the API server who its callers are.",
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
    )
    yield Right(
        purpose="The secure port asks the API server what its callers may do.",
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
    )
    yield Right(
        purpose="The client CAs that the secure port trusts.",
        resources=("configmaps",),
        names=(CLIENT_AUTHORITIES,),
        namespace=KUBE_SYSTEM,
        verbs=("get", "watch"),
    )


def _leases(config: Config, migration_lease: str) -> Iterator[Right]:
    election = config[LeaderElectionSettings]
    if not election.enabled:
        return
    migrates = config[LeaderMigrationSettings].enabled
    yield Right(
        purpose=(
            "Leader election; `watch` is for standby replicas. The second name is the lease of the "
            "leader migration."
            if migrates
            else "Leader election; `watch` is for standby replicas."
        ),
        group="coordination.k8s.io",
        resources=("leases",),
        names=(election.resource_name, migration_lease) if migrates else (election.resource_name,),
        namespace=election.resource_namespace,
        verbs=("get", "update", "watch"),
    )
    yield Right(
        purpose="The first start. RBAC cannot limit `create` to names.",
        group="coordination.k8s.io",
        resources=("leases",),
        namespace=election.resource_namespace,
        verbs=("create",),
    )


def _cluster_id(cluster: ClusterSettings) -> Iterator[Right]:
    if not cluster.id:
        yield Right(
            purpose="The UID of kube-system identifies the cluster. Not needed with --cluster-id.",
            resources=("namespaces",),
            names=(KUBE_SYSTEM,),
            namespace=KUBE_SYSTEM,
            verbs=("get",),
        )


def _webhooks(config: Config) -> Iterator[Right]:
    """What every replica reads for the webhooks that it serves; a dry run serves none."""
    settings = config[WebhookSettings]
    serves = settings.chosen() and settings.serving.port and not config[ManagerSettings].dry_run
    if not serves:
        return
    if RESIZE in settings.chosen():
        yield from _resize()
    if settings.is_managed:
        yield Right(
            purpose="The certificate of the webhook port.",
            resources=("secrets",),
            names=(WEBHOOK_NAME,),
            namespace=KUBE_SYSTEM,
            verbs=("get",),
        )


def _resize() -> Iterator[Right]:
    yield Right(
        purpose="The volume of a claim that is resized.",
        resources=("persistentvolumes",),
        verbs=("get",),
    )
    yield Right(
        purpose="Whether the class of a claim allows its growth.",
        group="storage.k8s.io",
        resources=("storageclasses",),
        verbs=("get",),
    )


def _tokens(client: ClientSettings, enabled: Iterable[AnyDescriptor]) -> Iterator[Right]:
    names = tuple(dict.fromkeys(each.names.identity for each in enabled))
    if not client.own_service_accounts or not names:
        return
    yield Right(
        purpose=(
            "Tokens of the controllers' accounts, and of no others: with the right to request any "
            "token, the manager could act as any account of kube-system."
        ),
        resources=("serviceaccounts/token",),
        names=names,
        namespace=KUBE_SYSTEM,
        verbs=("create",),
    )
    yield Right(
        purpose=(
            "Accounts of controllers that do not exist yet. RBAC cannot limit `create` to names; "
            "the rule above limits whose tokens can be requested."
        ),
        resources=("serviceaccounts",),
        namespace=KUBE_SYSTEM,
        verbs=("create",),
    )
