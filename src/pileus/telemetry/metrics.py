"""Every metric, declared once with its text; names, labels and buckets are the Go framework's.

One `Metrics` is built per process on a registry of its own and passed to all code that measures.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, repeat
from operator import mul

from pileus.telemetry.instruments import Gauge, MetricRegistry, Reading

NODE_DELAYS = (1, 4, 16, 64, 256, 1024)
MONITOR_DURATIONS = tuple(0.001 * 2**n for n in range(15))
SERVICE_DURATIONS = tuple(2.0**n for n in range(15))
RANGE_TRIES = (1, 5, 25, 125, 625)
QUEUE_DURATIONS = tuple(accumulate(repeat(10.0, 9), mul, initial=1e-8))
"""Multiplied one by one as in Go, where a bound is 9.999999999999999e-06."""
REQUEST_DURATIONS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
REQUEST_SIZES = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)
CLOUD_DURATIONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ACCESS_DURATIONS = tuple(0.001 * 2**n for n in range(15))
_DAY = 86400
CERTIFICATE_LIFETIMES = (
    *(0, 1800, 3600, 7200, 21600, 43200, _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY),
    *(30 * _DAY, 90 * _DAY, 180 * _DAY, 360 * _DAY),
)
REVIEW_DURATIONS = (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0)
COUNTERS_WITHOUT_TOTAL = frozenset({"authentication_attempts", "authenticated_user_requests"})
"""Counters that Kubernetes names without the usual ending. In OpenMetrics they have it."""


def new_metrics() -> "Metrics":
    """On a registry of its own."""
    return Metrics(MetricRegistry())


def _of_cloud(name: str, registry: MetricRegistry) -> Iterator[Reading]:
    """Returns the metrics of one cloud, with the label `cloud`; without those that are all zero."""
    for family, samples in registry.read():
        if any(each.value for each in samples):
            label = {"cloud": name}
            yield Reading(family, [each._replace(labels=each.labels | label) for each in samples])


class Metrics:
    """The instruments of one process."""

    def __init__(self, registry: MetricRegistry) -> None:
        self.registry = registry
        self._parts: dict[Gauge, list[Callable[[], float]]] = {}
        self._declare_nodes()
        self._declare_lifecycle()
        self._declare_services()
        self._declare_orphans()
        self._declare_volumes()
        self._declare_routes()
        self._declare_pod_ranges()
        self._declare_manager()
        self._declare_queues()
        self._declare_requests()
        self._declare_events()
        self._declare_rounds()
        self._declare_watches()
        self._declare_cloud()
        self._declare_plans()
        self._declare_ssh_keys()
        self._declare_process()
        self._declare_access()
        self._declare_reviews()
        self._declare_webhooks()

    def for_cloud(self, name: str) -> "Metrics":
        """Returns instruments for one of several clouds.

        They are exposed together with these, with a label `cloud`.
        """
        made = new_metrics()
        self.registry.add_source(lambda: _of_cloud(name, made.registry))
        return made

    def add_part(self, gauge: Gauge, part: Callable[[], float]) -> None:
        """Lets a gauge without labels report the sum of its parts, such as one per cloud."""
        parts = self._parts.setdefault(gauge, [])
        parts.append(part)
        gauge.set_function(lambda: sum(each() for each in parts))

    def _declare_nodes(self) -> None:
        self.taint_removal_delay = self.registry.histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "[ALPHA] Age of a node when its uninitialized taint was removed",
            NODE_DELAYS,
        )
        self.initial_node_sync_delay = self.registry.histogram(
            "node_controller_initial_node_sync_delay_seconds",
            "[ALPHA] Age of a node when its initialization finished",
            NODE_DELAYS,
        )

        self.nodes_failing = self.registry.gauge(
            "pileus_nodes_failing_initialization",
            "Nodes that wait for their initialization because it failed, for whatever reason",
        )
        self.oldest_uninitialized_node = self.registry.gauge(
            "pileus_oldest_uninitialized_node_seconds",
            "Age of the oldest node that still has the uninitialized taint; 0 if there is none",
        )
        self.nodes_ignored = self.registry.gauge(
            "pileus_nodes_ignored",
            "Nodes of other clouds, by their provider IDs or the provider's own answer",
        )

    def _declare_lifecycle(self) -> None:
        self.monitor_duration = self.registry.histogram(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "[ALPHA] How long it took to look after the nodes of a round",
            MONITOR_DURATIONS,
        )
        self.lifecycle_calls = self.registry.counter(
            "cloud_node_lifecycle_controller_cloud_provider_calls_total",
            "[ALPHA] Questions about single nodes, by operation and result; one call of the "
            "provider answers many",
            ("operation", "result"),
        )
        action = ("action",)
        self.node_breaker_open = self.registry.gauge(
            "pileus_node_breaker_open",
            "1 while too many machines are missing (delete) or stopped (out_of_service), so that "
            "none is acted on",
            action,
        )
        self.nodes_held = self.registry.gauge(
            "pileus_nodes_held",
            "Nodes that would be deleted or taken out of service if the breaker were closed",
            action,
        )
        self.nodes_deleted = self.registry.counter(
            "pileus_nodes_deleted_total", "Nodes deleted because the cloud has no machine for them"
        )

    def _declare_services(self) -> None:
        self.host_updates = self.registry.counter(
            "service_controller_loadbalancer_sync_total",
            "[ALPHA] Updates of a load balancer's members alone",
        )
        self.host_update_errors = self.registry.counter(
            "service_controller_nodesync_error_total",
            "[ALPHA] Updates of a load balancer's members alone that failed",
        )
        self.node_round_duration = self.registry.histogram(
            "service_controller_nodesync_latency_seconds",
            "[ALPHA] From a change of nodes until all load balancers have their new members",
            SERVICE_DURATIONS,
        )
        self.host_update_duration = self.registry.histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "[ALPHA] Duration of one update of a load balancer's members alone",
            SERVICE_DURATIONS,
        )
        self.services_failing = self.registry.gauge(
            "pileus_services_failing",
            "Services whose load balancer does not match the desired state because of a failure",
        )
        self.services_pending = self.registry.gauge(
            "pileus_services_pending",
            "Services whose load balancer the cloud is provisioning",
        )
        self.services_held = self.registry.gauge(
            "pileus_services_held",
            "Services whose load balancer keeps its members until a second check of the nodes",
        )
        self.service_drift_repaired = self.registry.counter(
            "pileus_service_drift_repaired_total",
            "Load balancers that were changed by others, and were brought back",
        )

    def _declare_orphans(self) -> None:
        self.orphaned_balancers = self.registry.gauge(
            "pileus_orphaned_load_balancers",
            "Owners of load balancers marked as this cluster's that have no Service",
        )
        self.orphan_deletion_paused = self.registry.gauge(
            "pileus_orphan_deletion_paused",
            "1 while orphaned load balancers are not deleted because they are too many, else 0",
        )
        self.vanished_services_kept = self.registry.counter(
            "pileus_vanished_services_kept_total",
            "Services deleted without their finalizer, many at once, with load balancers kept",
        )

    def _declare_volumes(self) -> None:
        self.volumes_failing = self.registry.gauge(
            "pileus_volumes_failing",
            "Volumes that could not be created, attached, detached, resized or deleted",
        )
        self.volumes_missing = self.registry.gauge(
            "pileus_volumes_missing",
            "PersistentVolumes whose volume is missing in the cloud, or not attached as reported",
        )
        self.volumes_orphaned = self.registry.gauge(
            "pileus_orphaned_volumes",
            "Volumes marked as this cluster's without PersistentVolume and claim",
        )

    def _declare_routes(self) -> None:
        self.route_syncs = self.registry.counter(
            "route_controller_route_sync_total",
            "[ALPHA] Rounds over the routes: changed, noop or error; and what asked for them",
            ("outcome", "trigger"),
        )

    def _declare_pod_ranges(self) -> None:
        labels = ("clusterCIDR",)
        self.ranges_taken = self.registry.counter(
            "node_ipam_controller_cidrset_cidrs_allocations_total",
            "[ALPHA] Pod ranges of nodes that were taken, found on nodes included",
            labels,
        )
        self.ranges_released = self.registry.counter(
            "node_ipam_controller_cidrset_cidrs_releases_total",
            "[ALPHA] Pod ranges of nodes that were given back",
            labels,
        )
        self.ranges_usage = self.registry.gauge(
            "node_ipam_controller_cidrset_usage_cidrs",
            "[ALPHA] Part of the pod ranges that is taken, from 0 to 1",
            labels,
        )
        self.ranges_most = self.registry.gauge(
            "node_ipam_controller_cirdset_max_cidrs",
            "[ALPHA] Pod ranges that fit into the cluster's (the spelling is the Go program's)",
            labels,
        )
        self.range_tries = self.registry.histogram(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            "[ALPHA] Ranges that were tried until a free one was found",
            RANGE_TRIES,
            labels,
        )

    def _declare_manager(self) -> None:
        self.running_controllers = self.registry.gauge(
            "running_managed_controllers",
            "[BETA] Indicates where instances of a controller are currently running",
            ("name", "manager"),
        )
        self.leading = self.registry.gauge(
            "leader_election_master_status",
            "[ALPHA] 1 while this process holds the lease, 0 while another one does",
            ("name",),
        )
        self.lease_slow_renewals = self.registry.counter(
            "leader_election_slowpath_total",
            "[ALPHA] Renewals of the lease that needed to read it first",
            ("name",),
        )
        self.lease_transitions = self.registry.gauge(
            "pileus_lease_transitions",
            "How often the lease changed hands, as the lease says; the same on all replicas",
            ("name",),
        )

    def _declare_queues(self) -> None:
        name = ("name",)
        self.queue_depth = self.registry.gauge("workqueue_depth", "[ALPHA] Keys that wait", name)
        self.queue_adds = self.registry.counter("workqueue_adds_total", "[ALPHA] Keys added", name)
        self.queue_wait = self.registry.histogram(
            "workqueue_queue_duration_seconds",
            "[ALPHA] How long a key waited before it was taken",
            QUEUE_DURATIONS,
            name,
        )
        self.queue_work = self.registry.histogram(
            "workqueue_work_duration_seconds",
            "[ALPHA] How long the work on a key took",
            QUEUE_DURATIONS,
            name,
        )
        self.queue_unfinished = self.registry.gauge(
            "workqueue_unfinished_work_seconds",
            "[ALPHA] Age of all work in progress, added up; grows when a worker is stuck",
            name,
        )
        self.queue_longest = self.registry.gauge(
            "workqueue_longest_running_processor_seconds",
            "[ALPHA] Age of the oldest work in progress",
            name,
        )
        self.queue_retries = self.registry.counter(
            "workqueue_retries_total", "[ALPHA] Keys added again after a failure", name
        )
        self.queue_keys = self.registry.gauge(
            "pileus_workqueue_keys", "Keys that wait, are being processed, or are due later", name
        )
        self.remembered_objects = self.registry.gauge(
            "pileus_remembered_objects",
            "Objects that a map of per-object state has entries for",
            ("memory",),
        )

    def _declare_requests(self) -> None:
        self.requests = self.registry.counter(
            "rest_client_requests_total",
            "[ALPHA] Requests to the API server, by status code, method and host",
            ("code", "method", "host"),
        )
        by_verb = ("verb", "host")
        self.request_duration = self.registry.histogram(
            "rest_client_request_duration_seconds",
            "[ALPHA] Duration of requests to the API server",
            REQUEST_DURATIONS,
            by_verb,
        )
        self.request_throttled = self.registry.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "[ALPHA] How long requests waited for the client's own limit",
            REQUEST_DURATIONS,
            by_verb,
        )
        self.request_size = self.registry.histogram(
            "rest_client_request_size_bytes", "[ALPHA] Size of requests", REQUEST_SIZES, by_verb
        )
        self.response_size = self.registry.histogram(
            "rest_client_response_size_bytes", "[ALPHA] Size of answers", REQUEST_SIZES, by_verb
        )

    def _declare_events(self) -> None:
        self.events_dropped = self.registry.counter(
            "pileus_events_dropped_total",
            "Events that users did not get to see: queue full, refused by the server, or gave up",
            ("component", "reason"),
        )

    def _declare_rounds(self) -> None:
        self.round_failures = self.registry.counter(
            "pileus_round_failures_total",
            "Failed rounds of periodic and background tasks, by task; each is retried with backoff",
            ("round",),
        )

    def _declare_watches(self) -> None:
        self.watch_age = self.registry.gauge(
            "pileus_watch_last_contact_seconds",
            "Seconds since the last byte on each watch; above 90 it is taken for dead",
            ("resource",),
        )
        self.watch_relists = self.registry.counter(
            "pileus_watch_relists_total",
            "Full lists that an informer had to make, by reason",
            ("resource", "reason"),
        )
        self.unreadable_objects = self.registry.counter(
            "pileus_unreadable_objects_total",
            "Objects in lists and watches that were skipped because they do not decode",
            ("resource",),
        )

    def _declare_cloud(self) -> None:
        self.cloud_calls = self.registry.counter(
            "pileus_cloud_calls_total",
            "Calls to the provider, by method and result (success, or the error's name)",
            ("provider", "capability", "method", "result"),
        )
        self.cloud_call_duration = self.registry.histogram(
            "pileus_cloud_call_duration_seconds",
            "Duration of calls to the provider",
            CLOUD_DURATIONS,
            ("provider", "capability", "method"),
        )
        self.cloud_call_items = self.registry.counter(
            "pileus_cloud_call_items_total",
            "Items (nodes, wishes, routes) that those calls carried",
            ("provider", "capability", "method"),
        )
        self.cloud_budget_waits = self.registry.counter(
            "pileus_cloud_budget_wait_seconds_total",
            "Seconds that calls waited for the call budget or for a Retry-After",
            ("provider",),
        )
        self.cloud_budget_pace = self.registry.gauge(
            "pileus_cloud_budget_calls_per_second",
            "Calls per second that the call budget allows now: grows while the cloud answers "
            "quickly, and is halved when it throttles a call",
            ("provider",),
        )
        self.cloud_failing = self.registry.gauge(
            "pileus_cloud_failing_seconds",
            "Seconds for which all calls to the provider have failed because the cloud is "
            "unavailable, throttles requests or refuses the credentials; 0 after an answer",
            ("provider",),
        )
        self.cloud_odd_answers = self.registry.counter(
            "pileus_cloud_odd_answers_total",
            "Parts of a provider's answers that made no sense and were dropped",
            ("provider", "capability", "method"),
        )

    def _declare_plans(self) -> None:
        by_change = ("controller", "place", "effect")
        self.planned_changes_open = self.registry.gauge(
            "pileus_planned_changes_open",
            "Changes that a manager with --dry-run would make now",
            by_change,
        )
        self.planned_changes_total = self.registry.counter(
            "pileus_planned_changes_total",
            "Changes planned by a manager with --dry-run, each counted once while it is planned",
            by_change,
        )

    def _declare_ssh_keys(self) -> None:
        self.ssh_keys_wanted = self.registry.gauge(
            "pileus_ssh_keys_wanted", "SSH keys that the source of --ssh-keys-from asks for"
        )
        self.ssh_keys_problems = self.registry.gauge(
            "pileus_ssh_keys_problems",
            "What is wrong with that source; while it is not 0 no key is withdrawn",
        )
        self.ssh_keys_nodes = self.registry.gauge(
            "pileus_ssh_keys_nodes",
            "Nodes by the state of their SSH keys: current, failed or unknown",
            ("state",),
        )
        self.ssh_keys_changes = self.registry.counter(
            "pileus_ssh_keys_changes_total",
            "SSH keys of nodes that were added or withdrawn",
            ("change",),
        )

    def _declare_process(self) -> None:
        self.loop_standstills = self.registry.counter(
            "pileus_event_loop_standstills_total",
            "How often the event loop stood still for seconds because some code blocked it",
        )

    def _declare_access(self) -> None:
        result = ("result",)
        self.authentications = self.registry.counter(
            "authentication_attempts", "[ALPHA] Requests to our own port, by result", result
        )
        self.authentication_duration = self.registry.histogram(
            "authentication_duration_seconds",
            "[ALPHA] How long it took to find out who asks",
            ACCESS_DURATIONS,
            result,
        )
        self.authenticated_requests = self.registry.counter(
            "authenticated_user_requests", "[ALPHA] Authenticated requests, by user", ("username",)
        )
        self.client_certificate_lifetime = self.registry.histogram(
            "apiserver_client_certificate_expiration_seconds",
            "[ALPHA] Time until the client certificate of a request expires",
            CERTIFICATE_LIFETIMES,
        )
        self.token_cache_requests = self.registry.counter(
            "authentication_token_cache_request_total",
            "[ALPHA] Lookups in the cache of tokens: hit or miss",
            ("status",),
        )
        self.authorizations = self.registry.counter(
            "authorization_attempts_total", "[ALPHA] Decisions on requests, by result", result
        )
        self.authorization_duration = self.registry.histogram(
            "authorization_duration_seconds",
            "[ALPHA] How long it took to decide whether a request is allowed",
            ACCESS_DURATIONS,
            result,
        )

    def _declare_reviews(self) -> None:
        code = ("code",)
        self.token_reviews = self.registry.counter(
            "apiserver_delegated_authn_request_total", "[ALPHA] TokenReviews, by answer", code
        )
        self.token_review_duration = self.registry.histogram(
            "apiserver_delegated_authn_request_duration_seconds",
            "[ALPHA] Duration of TokenReviews",
            REVIEW_DURATIONS,
            code,
        )
        self.access_reviews = self.registry.counter(
            "apiserver_delegated_authz_request_total",
            "[ALPHA] SubjectAccessReviews, by answer",
            code,
        )
        self.access_review_duration = self.registry.histogram(
            "apiserver_delegated_authz_request_duration_seconds",
            "[ALPHA] Duration of SubjectAccessReviews",
            REVIEW_DURATIONS,
            code,
        )

    def _declare_webhooks(self) -> None:
        labels = ("code", "webhook")
        self.webhook_requests = self.registry.counter(
            "cloud_provider_webhook_request_total",
            "[ALPHA] Requests for admission, by the HTTP code of the answer",
            labels,
        )
        self.webhook_duration = self.registry.histogram(
            "cloud_provider_webhook_request_duration_seconds",
            "[ALPHA] Duration of requests for admission",
            REVIEW_DURATIONS,
            labels,
        )
        self.webhook_reviews = self.registry.counter(
            "pileus_webhook_reviews_total",
            "Answers of admission webhooks: unchanged, changed, refused or unknown",
            ("webhook", "answer"),
        )
        self.webhook_certificate_expiry = self.registry.gauge(
            "pileus_webhook_certificate_expiration_timestamp_seconds",
            "When the managed certificate of the webhook port expires, in seconds since the epoch",
        )
