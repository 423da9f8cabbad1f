"""The whole configuration of the program: frozen, typed, complete.

Everything that runs is given its group, or the whole; nobody else reads flags or environment.
Durations are seconds.
"""

from dataclasses import dataclass, replace

from pileus.app.declared import access, controllers, generic, inspection, pileus, process, serving
from pileus.cloud.choice import CloudChoice, selected
from pileus.controllers.route.ownership import Ownership
from pileus.runtime.lease import Durations
from pileus.server.options import (
    AuthenticationOptions,
    AuthorizationOptions,
    RequestHeaderOptions,
    ServerOptions,
    ServingOptions,
)
from pileus.settings import feature_gates as gates
from pileus.settings.feature_gates import Gates
from pileus.settings.flags import Values
from pileus.settings.kinds import ModuleLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """How the API server is reached."""

    kubeconfig: str
    master: str
    content_type: str
    qps: float | None
    """None when nobody set it: no fixed rate. Less than zero: the user wants none."""
    burst: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    enabled: bool
    durations: Durations
    resource_lock: str
    resource_name: str
    resource_namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMigration:
    enabled: bool
    config_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generic:
    controllers: tuple[str, ...]
    """As the user wrote them; `controllers.is_running` reads them."""
    controller_start_interval: float
    min_resync_period: float
    gates: Gates
    profiling: bool
    contention_profiling: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeCloudShared:
    cloud_provider: str
    cloud_config_file: str
    cloud_list: tuple[CloudChoice, ...]
    """The list `clouds` in the file of `--config`."""
    cluster_name: str
    cluster_id: str
    """Of the marks in the cloud; empty: the UID of the namespace kube-system."""
    cluster_cidr: str
    allocate_node_cidrs: bool
    cidr_allocator_type: str
    configure_cloud_routes: bool
    route_reconciliation_period: float
    use_service_account_credentials: bool
    external_cloud_volume_plugin: str
    allow_untagged_cloud: bool
    node_sync_period: float

    @property
    def clouds(self) -> tuple[CloudChoice, ...]:
        """The selected clouds."""
        return selected(self.cloud_provider, self.cloud_config_file, self.cloud_list)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeController:
    concurrent_syncs: int
    concurrency_given: bool
    """Whether the user asked for that number of workers; else the controller chooses its own."""
    concurrent_status_updates: int
    status_update_frequency: float
    label_sync: bool

    @property
    def status_workers(self) -> int | None:
        """Zero or less means: as many as initialize nodes."""
        asked = self.concurrent_status_updates
        return asked if asked > 0 else self.workers

    @property
    def workers(self) -> int | None:
        """How many nodes to initialize at once; None leaves it to the controller."""
        return self.concurrent_syncs if self.concurrency_given else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleController:
    monitor_period: float
    concurrent_syncs: int
    concurrency_given: bool
    deletion_policy: str
    deletion_grace: float
    deletion_unidentified_grace: float
    deletion_max_fraction: float
    deletion_window: float
    out_of_service_taint: bool

    @property
    def workers(self) -> int | None:
        """How many nodes to write at once; None leaves it to the controller."""
        return self.concurrent_syncs if self.concurrency_given else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceController:
    concurrent_syncs: int
    concurrency_given: bool
    """Whether the user asked for that number of workers; else the controller chooses its own."""
    classes: tuple[str, ...]
    drift_period: float
    drain_cordoned: bool
    orphans: str

    @property
    def workers(self) -> int | None:
        """How many Services to work on at once; None leaves it to the controller."""
        return self.concurrent_syncs if self.concurrency_given else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteController:
    period: float | None
    """None when nobody set it, and changes of nodes cause rounds."""
    watch_based: bool
    ownership: Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamController:
    service_cluster_ip_range: str
    node_cidr_mask_size: int
    node_cidr_mask_size_ipv4: int
    node_cidr_mask_size_ipv6: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    entries: tuple[str, ...]
    serving: ServingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """Which API servers are asked about the callers of our port; empty: ours, as in a pod."""

    authentication_kubeconfig: str
    authorization_kubeconfig: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    format: str
    verbosity: int
    modules: tuple[ModuleLevel, ...]
    flush_frequency: float
    text_split_stream: bool
    json_split_stream: bool
    text_info_buffer_size: int
    json_info_buffer_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    generic: Generic
    client: ClientConnection
    leader_election: LeaderElection
    leader_migration: LeaderMigration
    shared: KubeCloudShared
    node: NodeController
    lifecycle: LifecycleController
    service: ServiceController
    route: RouteController
    ipam: IpamController
    server: ServerOptions
    delegation: Delegation
    webhooks: Webhooks
    logging: Logging
    dry_run: bool
    ssh_keys_from: str
    """Empty: keys are left alone."""
    reported_version: str


def build_config(values: Values) -> Config:
    """Arrange the values of all flags. Pure; says nothing about whether they make sense."""
    return Config(
        generic=_generic(values),
        client=_client(values),
        leader_election=_leader_election(values),
        leader_migration=LeaderMigration(
            enabled=values[inspection.ENABLE_LEADER_MIGRATION],
            config_file=values[inspection.LEADER_MIGRATION_CONFIG],
        ),
        shared=_shared(values),
        node=_node(values),
        lifecycle=_lifecycle(values),
        service=_service(values),
        route=_route(values),
        ipam=_ipam(values),
        server=ServerOptions(
            serving=_secure_serving(values),
            authentication=_authentication(values),
            authorization=_authorization(values),
        ),
        delegation=Delegation(
            authentication_kubeconfig=values[access.AUTHENTICATION_KUBECONFIG],
            authorization_kubeconfig=values[access.AUTHORIZATION_KUBECONFIG],
        ),
        webhooks=Webhooks(
            entries=values[serving.WEBHOOKS], serving=_serving(values, serving.WEBHOOK)
        ),
        logging=_logging(values),
        dry_run=values[pileus.DRY_RUN],
        ssh_keys_from=values[pileus.SSH_KEYS_FROM],
        reported_version=values[process.VERSION].reported,
    )


def _generic(values: Values) -> Generic:
    return Generic(
        controllers=values[generic.CONTROLLERS],
        controller_start_interval=values[generic.CONTROLLER_START_INTERVAL],
        min_resync_period=values[generic.MIN_RESYNC_PERIOD],
        gates=Gates(values[generic.FEATURE_GATES]),
        profiling=values[inspection.PROFILING],
        contention_profiling=values[inspection.CONTENTION_PROFILING],
    )


def _client(values: Values) -> ClientConnection:
    qps, burst = generic.KUBE_API_QPS, generic.KUBE_API_BURST
    return ClientConnection(
        kubeconfig=values[process.KUBECONFIG],
        master=values[process.MASTER],
        content_type=values[generic.KUBE_API_CONTENT_TYPE],
        qps=values[qps] if values.given(qps) else None,
        burst=values[burst] if values.given(burst) else None,
    )


def _leader_election(values: Values) -> LeaderElection:
    return LeaderElection(
        enabled=values[generic.LEADER_ELECT],
        durations=Durations(
            lease=values[generic.LEASE_DURATION],
            renew_deadline=values[generic.RENEW_DEADLINE],
            retry=values[generic.RETRY_PERIOD],
        ),
        resource_lock=values[generic.RESOURCE_LOCK],
        resource_name=values[generic.RESOURCE_NAME],
        resource_namespace=values[generic.RESOURCE_NAMESPACE],
    )


def _shared(values: Values) -> KubeCloudShared:
    return KubeCloudShared(
        cloud_provider=values[generic.CLOUD_PROVIDER],
        cloud_config_file=values[generic.CLOUD_CONFIG],
        cloud_list=values[pileus.CLOUD_LIST],
        cluster_name=values[generic.CLUSTER_NAME],
        cluster_id=values[pileus.CLUSTER_ID],
        cluster_cidr=values[generic.CLUSTER_CIDR],
        allocate_node_cidrs=values[generic.ALLOCATE_NODE_CIDRS],
        cidr_allocator_type=values[generic.CIDR_ALLOCATOR_TYPE],
        configure_cloud_routes=values[generic.CONFIGURE_CLOUD_ROUTES],
        route_reconciliation_period=values[generic.ROUTE_RECONCILIATION_PERIOD],
        use_service_account_credentials=values[generic.USE_SERVICE_ACCOUNT_CREDENTIALS],
        external_cloud_volume_plugin=values[generic.EXTERNAL_CLOUD_VOLUME_PLUGIN],
        allow_untagged_cloud=values[generic.ALLOW_UNTAGGED_CLOUD],
        node_sync_period=values[generic.NODE_SYNC_PERIOD],
    )


def _node(values: Values) -> NodeController:
    return NodeController(
        concurrent_syncs=values[controllers.CONCURRENT_NODE_SYNCS],
        concurrency_given=values.given(controllers.CONCURRENT_NODE_SYNCS),
        concurrent_status_updates=values[controllers.CONCURRENT_NODE_STATUS_UPDATES],
        status_update_frequency=values[process.NODE_STATUS_UPDATE_FREQUENCY],
        label_sync=values[pileus.NODE_LABEL_SYNC],
    )


def _lifecycle(values: Values) -> LifecycleController:
    return LifecycleController(
        monitor_period=values[controllers.NODE_MONITOR_PERIOD],
        concurrent_syncs=values[controllers.CONCURRENT_NODE_LIFECYCLE_SYNCS],
        concurrency_given=values.given(controllers.CONCURRENT_NODE_LIFECYCLE_SYNCS),
        deletion_policy=values[pileus.NODE_DELETION_POLICY],
        deletion_grace=values[pileus.NODE_DELETION_GRACE],
        deletion_unidentified_grace=values[pileus.NODE_DELETION_UNIDENTIFIED_GRACE],
        deletion_max_fraction=values[pileus.NODE_DELETION_MAX_FRACTION],
        deletion_window=values[pileus.NODE_DELETION_WINDOW],
        out_of_service_taint=values[pileus.NODE_OUT_OF_SERVICE_TAINT],
    )


def _service(values: Values) -> ServiceController:
    return ServiceController(
        concurrent_syncs=values[controllers.CONCURRENT_SERVICE_SYNCS],
        concurrency_given=values.given(controllers.CONCURRENT_SERVICE_SYNCS),
        classes=values[pileus.SERVICE_CLASSES],
        drift_period=values[pileus.SERVICE_DRIFT_PERIOD],
        drain_cordoned=values[pileus.SERVICE_DRAIN_CORDONED],
        orphans=values[pileus.SERVICE_ORPHANS],
    )


def _route(values: Values) -> RouteController:
    watch_based = Gates(values[generic.FEATURE_GATES]).enabled(gates.WATCH_BASED_ROUTES)
    period = generic.ROUTE_RECONCILIATION_PERIOD
    return RouteController(
        period=values[period] if values.given(period) or not watch_based else None,
        watch_based=watch_based,
        ownership=values[pileus.ROUTE_OWNERSHIP],
    )


def _ipam(values: Values) -> IpamController:
    return IpamController(
        service_cluster_ip_range=values[controllers.SERVICE_CLUSTER_IP_RANGE],
        node_cidr_mask_size=values[controllers.NODE_CIDR_MASK_SIZE],
        node_cidr_mask_size_ipv4=values[controllers.NODE_CIDR_MASK_SIZE_IPV4],
        node_cidr_mask_size_ipv6=values[controllers.NODE_CIDR_MASK_SIZE_IPV6],
    )


def _secure_serving(values: Values) -> ServingOptions:
    return replace(
        _serving(values, serving.SECURE),
        permit_address_sharing=values[serving.PERMIT_ADDRESS_SHARING],
        permit_port_sharing=values[serving.PERMIT_PORT_SHARING],
    )


def _serving(values: Values, flags: serving.ServingFlags) -> ServingOptions:
    return ServingOptions(
        bind_address=values[flags.bind_address] or flags.bind_address.default,
        port=values[flags.secure_port],
        cert_dir=values[flags.cert_dir],
        pair_name=flags.pair_name,
        cert_file=values[flags.tls_cert_file],
        key_file=values[flags.tls_private_key_file],
        cipher_suites=values[flags.tls_cipher_suites],
        curve_preferences=values[flags.tls_curve_preferences],
        min_version=values[flags.tls_min_version],
        sni=values[flags.tls_sni_cert_key],
    )


def _authentication(values: Values) -> AuthenticationOptions:
    return AuthenticationOptions(
        skip_lookup=values[access.AUTHENTICATION_SKIP_LOOKUP],
        tolerate_lookup_failure=values[access.AUTHENTICATION_TOLERATE_LOOKUP_FAILURE],
        token_cache_ttl=values[access.AUTHENTICATION_CACHE_TTL],
        client_ca_file=values[access.CLIENT_CA_FILE],
        request_header=RequestHeaderOptions(
            client_ca_file=values[access.REQUESTHEADER_CLIENT_CA_FILE],
            allowed_names=values[access.REQUESTHEADER_ALLOWED_NAMES],
            username_headers=values[access.REQUESTHEADER_USERNAME_HEADERS],
            uid_headers=values[access.REQUESTHEADER_UID_HEADERS],
            group_headers=values[access.REQUESTHEADER_GROUP_HEADERS],
            extra_headers_prefix=values[access.REQUESTHEADER_EXTRA_HEADERS_PREFIX],
        ),
    )


def _authorization(values: Values) -> AuthorizationOptions:
    return AuthorizationOptions(
        always_allow_paths=values[access.AUTHORIZATION_ALWAYS_ALLOW_PATHS],
        authorized_ttl=values[access.AUTHORIZATION_AUTHORIZED_TTL],
        unauthorized_ttl=values[access.AUTHORIZATION_UNAUTHORIZED_TTL],
    )


def _logging(values: Values) -> Logging:
    return Logging(
        format=values[process.LOGGING_FORMAT],
        verbosity=values[process.V],
        modules=values[process.VMODULE],
        flush_frequency=values[process.LOG_FLUSH_FREQUENCY],
        text_split_stream=values[process.LOG_TEXT_SPLIT_STREAM],
        json_split_stream=values[process.LOG_JSON_SPLIT_STREAM],
        text_info_buffer_size=values[process.LOG_TEXT_INFO_BUFFER_SIZE],
        json_info_buffer_size=values[process.LOG_JSON_INFO_BUFFER_SIZE],
    )
