"""Whether a configuration makes sense; all that is wrong is said at once."""

import re
from collections.abc import Callable, Iterable, Iterator

from pileus.app.config import Config
from pileus.app.controller_settings import asked_of
from pileus.app.declared.pileus import DELETION_POLICIES, ORPHAN_POLICIES
from pileus.app.registry import CONTROLLERS
from pileus.cloud import choice
from pileus.controllers.ipam import sizes
from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.service.annotations import NO_DEFAULT_CLASS
from pileus.controllers.ssh_keys.location import BadLocation, located
from pileus.runtime import lease
from pileus.server.options import ServingOptions
from pileus.server.tls import tls_problems
from pileus.settings import feature_gates as gates
from pileus.settings.go_duration import render_duration
from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean

_HIGHEST_PORT = 65535
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_STOCK = tuple(names.canonical for names in CONTROLLERS.names)


def logging_problems(config: Config) -> tuple[str, ...]:
    """What is wrong with the logging flags; asked first, because it decides how to say the rest."""
    logging, alpha = config.logging, config.generic.gates.enabled(gates.LOGGING_ALPHA)
    found: list[str] = []
    if logging.flush_frequency <= 0:
        shown = render_duration(logging.flush_frequency)
        found.append(
            f"--log-flush-frequency: flushFrequency: Invalid value: {quote(shown)}: "
            "Must be greater than zero"
        )
    if logging.format not in {"text", "json"}:
        hint = did_you_mean(logging.format, ("text", "json"))
        found.append(
            f"--logging-format: format: Invalid value: {quote(logging.format)}: "
            f"Unsupported log format; use text or json{hint}"
        )
    elif logging.format == "json" and not config.generic.gates.enabled(gates.LOGGING_BETA):
        found.append(
            "--logging-format: format: Forbidden: Log format json is disabled, "
            "see LoggingBetaOptions feature"
        )
    if logging.modules and logging.format != "text":
        found.append("--vmodule: Forbidden: Only supported for text log format")
    gated = {
        ("log-text-split-stream", "text.splitStream"): logging.text_split_stream,
        ("log-text-info-buffer-size", "text.infoBufferSize"): logging.text_info_buffer_size != 0,
        ("log-json-split-stream", "json.splitStream"): logging.json_split_stream,
        ("log-json-info-buffer-size", "json.infoBufferSize"): logging.json_info_buffer_size != 0,
    }
    found += [
        f"--{flag}: options.{name}: Forbidden: Feature {gates.LOGGING_ALPHA.name} is disabled"
        for (flag, name), used in gated.items()
        if used and not alpha
    ]
    return tuple(found)


def problems(
    config: Config, *, controllers: Iterable[str] = _STOCK, webhooks: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return all that is wrong, in the words of the Go program where it has any.

    `controllers`, `webhooks`: the names that exist (a provider may bring its own).
    """
    checks: tuple[Callable[[Config], Iterator[str]], ...] = (
        _leader_election,
        lambda config: _names(config.generic.controllers, controllers, "controllers"),
        _client,
        _periods,
        _workers,
        _node_deletion,
        _services,
        _main_port,
        _authentication,
        _authorization,
        lambda config: _webhooks(config, webhooks),
        _ipam,
        _ssh_keys,
        _provider,
    )
    return tuple(problem for check in checks for problem in check(config))


def together(found: tuple[str, ...]) -> str:
    """Return one message for all problems: `a`, or `[a, b, c]`."""
    unique = tuple(dict.fromkeys(found))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _leader_election(config: Config) -> Iterator[str]:
    election = config.leader_election
    if not election.enabled:
        return
    if election.resource_lock != "leases":
        yield '--leader-elect-resource-lock: resourceLock value must be "leases"'
    names = {
        "leader-elect-resource-name": (election.resource_name, _SUBDOMAIN, 253),
        "leader-elect-resource-namespace": (election.resource_namespace, _LABEL, 63),
    }
    for flag, (name, form, longest) in names.items():
        if not re.fullmatch(form, name) or len(name) > longest:
            signs = "'-' or '.'" if form is _SUBDOMAIN else "'-'"
            yield (
                f"--{flag}: {quote(name)} is not a valid name: use at most {longest} lower case "
                f"letters, digits and {signs} between them"
            )
    yield from lease.problems(election.durations)


def _names(entries: Iterable[str], known: Iterable[str], what: str) -> Iterator[str]:
    names = tuple(known)
    for word in CONTROLLERS.unknown(entries, names):
        hint = did_you_mean(word, names)
        yield f"--{what}: {quote(word)} is not in the list of known {what}{hint}"


def _client(config: Config) -> Iterator[str]:
    client = config.client
    if client.qps == 0:
        yield "kube-api-qps must not be 0; leave it out, or give a negative one, for no limit"
    if client.burst is not None and client.burst < 1:
        yield f"kube-api-burst must be at least 1, but got {client.burst}"


def _periods(config: Config) -> Iterator[str]:
    shared, server = config.shared, config.server
    pauses = {
        "route-reconciliation-period": shared.route_reconciliation_period,
        "node-monitor-period": config.lifecycle.monitor_period,
        "node-status-update-frequency": config.node.status_update_frequency,
        "node-deletion-window": config.lifecycle.deletion_window,
    }
    for name, seconds in pauses.items():
        if seconds <= 0:
            yield f"{name} must be greater than zero, but got {render_duration(seconds)}"
    spans = {
        "controller-start-interval": config.generic.controller_start_interval,
        "min-resync-period": config.generic.min_resync_period,
        "node-deletion-grace": config.lifecycle.deletion_grace,
        "node-deletion-unidentified-grace": config.lifecycle.deletion_unidentified_grace,
        "service-drift-period": config.service.drift_period,
        "authentication-token-webhook-cache-ttl": server.authentication.token_cache_ttl,
        "authorization-webhook-cache-authorized-ttl": server.authorization.authorized_ttl,
        "authorization-webhook-cache-unauthorized-ttl": server.authorization.unauthorized_ttl,
    }
    for name, seconds in spans.items():
        if seconds < 0:
            yield f"{name} must not be negative, but got {render_duration(seconds)}"


def _workers(config: Config) -> Iterator[str]:
    counts = {
        "concurrent-node-syncs": config.node.concurrent_syncs,
        "concurrent-node-lifecycle-syncs": config.lifecycle.concurrent_syncs,
        "concurrent-service-syncs": config.service.concurrent_syncs,
    }
    for name, count in counts.items():
        if count < 1:
            yield f"{name} must be at least 1, but got {count}"


def _node_deletion(config: Config) -> Iterator[str]:
    policy = config.lifecycle.deletion_policy
    if policy not in DELETION_POLICIES:
        known, hint = ", ".join(DELETION_POLICIES), did_you_mean(policy, DELETION_POLICIES)
        yield f"node-deletion-policy must be one of {known}, but got {quote(policy)}{hint}"
    fraction = config.lifecycle.deletion_max_fraction
    if not 0 < fraction <= 1:
        yield f"node-deletion-max-fraction must be above 0 and at most 1, but got {fraction:g}"


def _services(config: Config) -> Iterator[str]:
    asked = config.service
    if asked.orphans not in ORPHAN_POLICIES:
        known, hint = ", ".join(ORPHAN_POLICIES), did_you_mean(asked.orphans, ORPHAN_POLICIES)
        yield f"service-orphans must be one of {known}, but got {quote(asked.orphans)}{hint}"
    for name in asked.classes:
        if name != NO_DEFAULT_CLASS and not re.fullmatch(r"[^\s/]+/[^\s/]+", name):
            yield f"service-classes: {quote(name)} must be a name such as example.com/fast, or '-'"


def _main_port(config: Config) -> Iterator[str]:
    serving = config.server.serving
    if not 0 <= serving.port <= _HIGHEST_PORT:
        yield (
            f"--secure-port {serving.port} must be between 0 and 65535, inclusive. "
            "0 for turning off secure port"
        )
    yield from _tls(serving, "")


def _tls(serving: ServingOptions, prefix: str) -> Iterator[str]:
    if bool(serving.cert_file) != bool(serving.key_file):
        yield (f"--{prefix}tls-cert-file and --{prefix}tls-private-key-file must be given together")
    yield from tls_problems(serving, prefix)


def _authentication(config: Config) -> Iterator[str]:
    proxies = config.server.authentication.request_header
    lists = {
        "requestheader-username-headers": proxies.username_headers,
        "requestheader-uid-headers": proxies.uid_headers,
        "requestheader-group-headers": proxies.group_headers,
        "requestheader-extra-headers-prefix": proxies.extra_headers_prefix,
        "requestheader-allowed-names": proxies.allowed_names,
    }
    for name, entries in lists.items():
        if any(not entry.strip() for entry in entries):
            yield f"empty value in {quote(name)}"
    uid = proxies.uid_headers
    if uid and "x-remote-uid" not in {header.lower() for header in uid}:
        yield (
            "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid "
            "header - API aggregation will not work"
        )


def _authorization(config: Config) -> Iterator[str]:
    for path in config.server.authorization.misread_paths():
        yield f"--authorization-always-allow-paths: only trailing * allowed in {quote(path)}"


def _webhooks(config: Config, known: Iterable[str]) -> Iterator[str]:
    webhooks = config.webhooks
    yield from _names(webhooks.entries, known, "webhooks")
    if webhooks.entries and not config.generic.gates.enabled(gates.WEBHOOK):
        yield f"--webhooks needs --feature-gates={gates.WEBHOOK.name}=true"
    port = webhooks.serving.port
    if not 0 <= port <= _HIGHEST_PORT:
        yield (
            f"--webhook-secure-port {port} must be between 0 and 65535, inclusive. "
            "A value of 0 disables the webhook endpoint entirely."
        )
    yield from _tls(webhooks.serving, "webhook-")
    if port and port == config.server.serving.port:
        yield "--webhook-secure-port cannot be the same value as --secure-port"


def _ipam(config: Config) -> Iterator[str]:
    lengths = {
        "node-cidr-mask-size": (config.ipam.node_cidr_mask_size, 128),
        "node-cidr-mask-size-ipv4": (config.ipam.node_cidr_mask_size_ipv4, 32),
        "node-cidr-mask-size-ipv6": (config.ipam.node_cidr_mask_size_ipv6, 128),
    }
    for name, (size, longest) in lengths.items():
        if not 0 <= size <= longest:
            yield f"{name} must be between 0 and {longest}, but got {size}"
    asked = asked_of(config)
    yield from sizes.malformed(asked)
    allocates = config.shared.allocate_node_cidrs and CONTROLLERS.is_running(
        IPAM, config.generic.controllers
    )
    if allocates and not config.shared.cluster_cidr:
        yield f"--allocate-node-cidrs with {IPAM.canonical} needs --cluster-cidr"
    elif allocates:
        yield from sizes.misfits(asked)


def _ssh_keys(config: Config) -> Iterator[str]:
    try:
        if config.ssh_keys_from:
            located(config.ssh_keys_from)
    except BadLocation as error:
        yield f"--ssh-keys-from: {error}"


def _provider(config: Config) -> Iterator[str]:
    shared = config.shared
    given = (shared.cloud_provider, shared.cloud_config_file, shared.cloud_list)
    yield from choice.problems(*given)
    names = [name for name in config.service.classes if name != NO_DEFAULT_CLASS]
    if names and len(shared.clouds) > 1:
        yield (
            f"--service-classes={','.join(names)} does not say which of the clouds "
            f"{', '.join(cloud.name for cloud in shared.clouds)} serves them: list classes per "
            "cloud in the list clouds in the file of --config"
        )
