"""Checks of the API server: its version, its clock, the manager's rights, and webhooks. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping

from pileus.admission.names import DOMAIN, NAME
from pileus.cloud.finding import Finding
from pileus.doctor.check import Verdict, counted, error, lasting, listed, note, warning
from pileus.doctor.manager_checks import install
from pileus.doctor.observation import Observation, Reviewed, Server, known
from pileus.doctor.records import (
    Node,
)
from pileus.kube.model.admissionregistration_v1 import (
    Webhook,
    WebhookConfiguration,
    WebhookRule,
)
from pileus.objects.rights import KUBE_SYSTEM
from pileus.version import KUBERNETES

OLDEST = (1, 30)
"""The oldest minor version of the API server that is supported (docs/reference/support.md)."""
NEWEST = tuple(int(part) for part in KUBERNETES.removeprefix("v").split(".")[:2])
KUBELET_SKEW = 3
"""Minor versions that a kubelet may be older than the API server, by Kubernetes' own policy."""
CLOCK_WARNING, CLOCK_ERROR = 10.0, 120.0
"""Seconds between two clocks. Tokens and certificates allow for little more than a minute."""
WRITTEN = {
    "": frozenset({"nodes", "nodes/status", "services", "services/status", "events"}),
    "coordination.k8s.io": frozenset({"leases"}),
}
"""What the manager writes, by API group."""
WRITES = frozenset({"CREATE", "UPDATE", "*"})
SUPPORT = "see docs/reference/support.md"


def api_server(seen: Observation) -> Verdict:
    """Versions of the API server and of the kubelets."""
    server = known(seen.server)
    version = minor_of(server.version)
    findings = [*_server_version(server, version)]
    if not isinstance(seen.nodes, tuple):
        return Verdict(f"{server.version} at {server.host}", tuple(findings))
    findings += _kubelet_versions(seen.nodes, version)
    return Verdict(f"{server.version} at {server.host}", tuple(findings))


def minor_of(version: str) -> tuple[int, int] | None:
    """Returns (1, 37) for v1.37.1; None if it is not a version of Kubernetes."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _server_version(server: Server, version: tuple[int, int] | None) -> Iterator[Finding]:
    subject = f"API server {server.host}"
    if version is None:
        yield warning(
            "api-version-unknown",
            subject,
            f'its version "{server.version}" is not a version of Kubernetes',
            reason="whether this API server is supported is not known",
            fix="kubectl version",
        )
    elif version < OLDEST:
        yield error(
            "api-version-too-old",
            subject,
            f"Kubernetes {server.version} is older than {_shown(OLDEST)}",
            reason="Pileus is not tested with it and may send requests that it does not know",
            fix=f"upgrade the control plane to {_shown(OLDEST)} or newer; {SUPPORT}",
        )
    elif version > (NEWEST[0], NEWEST[1] + 1):
        yield warning(
            "api-version-too-new",
            subject,
            f"Kubernetes {server.version} is more than one minor version newer than {KUBERNETES}",
            reason=f"this version of Pileus implements {KUBERNETES}",
            fix=f"upgrade Pileus; {SUPPORT}",
        )


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _kubelet_versions(nodes: Iterable[Node], version: tuple[int, int] | None) -> Iterator[Finding]:
    if version is None:
        return
    old = {
        node.metadata.name
        for node in nodes
        if (kubelet := minor_of(kubelet_of(node)))
        and (kubelet[0], kubelet[1] + KUBELET_SKEW) < version
    }
    if old:
        yield warning(
            "kubelet-too-old",
            f"Nodes {listed(old)}" if len(old) > 1 else f"Node {listed(old)}",
            f"kubelet is more than {KUBELET_SKEW} minor versions older than the API server",
            reason="Kubernetes does not support this version skew",
            fix="kubectl get nodes --output=wide   # then upgrade the kubelets",
        )


def kubelet_of(node: Node) -> str:
    info = node.status.node_info if node.status else None
    return info.kubelet_version if info else ""


def clock(seen: Observation) -> Verdict:
    """The API server's clock against the local one."""
    server = known(seen.server)
    if server.ahead is None:
        return Verdict("not checked: the API server sends no time", is_skipped=True)
    off = abs(server.ahead)
    summary = f"{off:.0f} s between the API server and this machine"
    if off < CLOCK_WARNING:
        return Verdict(summary)
    make = error if off >= CLOCK_ERROR else warning
    return Verdict(
        summary,
        (
            make(
                "clock-skew",
                f"API server {server.host}",
                f"its clock is {lasting(off)} {'ahead of' if server.ahead > 0 else 'behind'} the "
                "clock of this machine",
                reason="tokens and certificates are refused as expired or not valid yet, and times "
                "in Leases and events are misleading",
                fix="timedatectl set-ntp true   # on the machine whose clock is wrong",
            ),
        ),
    )


def rights(seen: Observation) -> Verdict:
    """The rights of the manager's account."""
    found = known(seen.rights)
    account = f"service account {found.account}"
    if not found.exists:
        made = note(
            "account-missing",
            account,
            "does not exist",
            reason="its rights were not checked. That is expected if the manager runs outside of "
            "the cluster or with another account",
            fix="pileus doctor --manager-account=NAMESPACE/NAME",
        )
        return Verdict(f"{account} does not exist", (made,))
    missing = [each for each in found.reviews if not each.is_allowed]
    return Verdict(
        f"{account} has all {len(found.reviews)} rights that the enabled controllers need",
        tuple(_missing_rights(missing, install(seen.expected))),
    )


def _missing_rights(missing: Iterable[Reviewed], fix: str) -> Iterator[Finding]:
    by_purpose: dict[tuple[str, str], list[Reviewed]] = {}
    for each in missing:
        by_purpose.setdefault((each.account, each.right.purpose), []).append(each)
    for (account, purpose), reviews in by_purpose.items():
        texts = dict.fromkeys(right_text(each) for each in reviews)
        yield error(
            "right-missing",
            f"service account {account}",
            f"may not {', '.join(texts)}",
            reason=f"needed for: {purpose.rstrip('.')}",
            fix=fix,
        )


def right_text(review: Reviewed) -> str:
    group = f".{review.right.group}" if review.right.group else ""
    name = f" {review.name}" if review.name else ""
    where = f" in {review.right.namespace}" if review.right.namespace else ""
    return f"{review.verb} {review.resource}{group}{name}{where}"


def webhooks(seen: Observation) -> Verdict:
    """Webhooks that would make the manager's writes fail."""
    configurations = known(seen.webhooks)
    hooks = [
        (configuration, hook)
        for configuration in configurations
        for hook in configuration.webhooks or ()
        if can_block(hook)
    ]
    endpoints: Mapping[str, int] = known(seen.endpoints) if hooks else {}
    return Verdict(
        f"{counted(len(hooks), 'webhook')} can reject writes of the manager; each has endpoints"
        if hooks
        else "no webhook can block writes of the manager",
        (*_blocking(hooks, endpoints), *_untrusted(configurations)),
    )


def _untrusted(configurations: Iterable[WebhookConfiguration]) -> Iterator[Finding]:
    """Yields our own webhooks that the API server cannot trust; it ignores these."""
    ours = [
        (each, hook)
        for each in configurations
        if each.metadata.name == NAME
        for hook in each.webhooks or ()
        if hook.name.endswith(f".{DOMAIN}")
    ]
    bundles = {hook.client_config.ca_bundle for _, hook in ours} - {None}
    fix = (
        f"kubectl --namespace={KUBE_SYSTEM} get events "
        f"--field-selector=involvedObject.name={NAME}   # and see the log of the leader"
    )
    for each, hook in ours:
        subject = f"{each.kind or 'webhook configuration'} {NAME}"
        if hook.client_config.ca_bundle is None:
            yield warning(
                "webhook-without-ca",
                subject,
                f"webhook {hook.name} has no CA: the API server does not trust the manager, and "
                "ignores the webhook",
                reason="the leader writes the CA within a minute, unless it runs without "
                "--webhooks, lacks rights, or serves with files (--webhook-tls-cert-file)",
                fix=fix,
            )
        elif len(bundles) > 1:
            yield warning(
                "webhook-ca-differs",
                subject,
                f"webhook {hook.name} has another CA than the other webhooks of the manager: the "
                "API server ignores those with the wrong one",
                reason="the leader corrects the CA within a minute, unless it does not run or "
                "lacks rights",
                fix=fix,
            )


def can_block(hook: Webhook) -> bool:
    """Whether the failure of a webhook fails a write of the manager."""
    fails = (hook.failure_policy or "Fail") == "Fail"
    return fails and any(_is_about_us(rule) for rule in hook.rules or ())


def _is_about_us(rule: WebhookRule) -> bool:
    operations = {operation.upper() for operation in rule.operations or ()}
    if not operations & WRITES:
        return False
    groups = rule.api_groups or ()
    return any(
        ("*" in groups or group in groups) and _names(rule.resources or (), resources)
        for group, resources in WRITTEN.items()
    )


def _names(patterns: Iterable[str], resources: Iterable[str]) -> bool:
    written = tuple(resources)
    return any(_matches(pattern, resource) for pattern in patterns for resource in written)


def _matches(pattern: str, resource: str) -> bool:
    """`*` means every resource, `*/*` also subresources, `nodes/*` the subresources of nodes."""
    plain, _, below = resource.partition("/")
    wanted, _, wanted_below = pattern.partition("/")
    return wanted in {"*", plain} and (wanted_below in (below, "*"))


def _blocking(
    hooks: Iterable[tuple[WebhookConfiguration, Webhook]], endpoints: Mapping[str, int]
) -> Iterator[Finding]:
    for configuration, hook in hooks:
        service = hook.client_config.service
        if service is None or endpoints.get(f"{service.namespace}/{service.name}", 0):
            continue
        kind = configuration.kind or "webhook configuration"
        yield error(
            "webhook-without-endpoints",
            f"{kind} {configuration.metadata.name}",
            f"webhook {hook.name} must answer before nodes or Services can be changed, but its "
            f"Service {service.namespace}/{service.name} has no ready endpoint",
            reason="with failurePolicy Fail, the API server rejects these writes of the manager. "
            "New nodes stay tainted, so that the webhook's own pods may wait for a node",
            fix=f"kubectl --namespace={service.namespace} get pods   # start the webhook, or: "
            f"kubectl delete {kind.lower()} {configuration.metadata.name}",
        )
