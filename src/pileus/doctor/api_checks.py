"""Checks of the API server: its version, its clock, the manager's rights, and webhooks. Pure."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from pileus.admission.names import DOMAIN, NAME
from pileus.cloud.finding import Finding
from pileus.doctor.check import (
    NAMED,
    Verdict,
    counted,
    error,
    lasting,
    listed,
    note,
    titled,
    warning,
)
from pileus.doctor.installation import register_webhooks, restore_rights
from pileus.doctor.observation import (
    Grant,
    Observation,
    Reviewed,
    Rights,
    Server,
    is_account,
    known,
)
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
    fix = restore_rights(seen.installation, seen.expected.given, found.account)
    return Verdict(
        f"{account} has all {len(found.reviews)} rights that the enabled controllers need",
        (*_missing_rights(missing, fix), *_missing_accounts(found)),
    )


def _missing_accounts(found: Rights) -> Iterator[Finding]:
    """Yields the controllers' accounts that do not exist, which the manager may create itself."""
    if not found.missing:
        return
    may_create = any(
        each.is_allowed and (each.verb, each.resource) == ("create", "serviceaccounts")
        for each in found.reviews
    )
    commands = (
        f"kubectl --namespace={namespace} create serviceaccount {name}"
        for namespace, _, name in (each.partition("/") for each in found.missing)
    )
    yield (note if may_create else warning)(
        "controller-account-missing",
        titled("service account", found.missing),
        "used with --use-service-account-credentials, but does not exist",
        reason="the manager creates the account before the first request of its controller"
        if may_create
        else "the controller cannot work: the manager lacks the right to create the account",
        fix=" && ".join(commands),
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


def unneeded_rights(seen: Observation) -> Verdict:
    """Rights of the manager's accounts that no enabled controller needs, and who grants them."""
    grants = known(seen.grants)
    findings = tuple(
        _unneeded(seen, grant, beyond) for grant in grants if (beyond := [*_beyond(grant)])
    )
    return Verdict(
        f"none, in {counted(len(grants), 'binding')} of the manager's accounts", findings
    )


def _beyond(grant: Grant) -> Iterator[str]:
    """Yields what a binding allows and the account does not need, by resource."""
    where = grant.binding.metadata.namespace
    for rule in grant.rules:
        for url in rule.non_resource_urls or ():
            verbs = [verb for verb in rule.verbs if not _needs_url(grant, url, verb)]
            if verbs:
                yield f"{', '.join(verbs)} {url}"
        names = rule.resource_names or ("",)
        for group, resource in product(rule.api_groups or (), rule.resources or ()):
            verbs = [
                verb
                for verb in rule.verbs
                if not all(_needs(grant, where, group, resource, verb, name) for name in names)
            ]
            if verbs:
                shown = f"{resource}.{group}" if group else resource
                yield f"{', '.join(verbs)} {shown}"


def _needs_url(grant: Grant, url: str, verb: str) -> bool:
    return any(url in each.urls and verb in each.verbs for each in grant.needed)


def _needs(grant: Grant, where: str, group: str, resource: str, verb: str, name: str) -> bool:
    return any(
        each.group == group
        and resource in each.resources
        and verb in each.verbs
        and (not each.names or name in each.names)
        and each.namespace in {"", where}
        for each in grant.needed
    )


def _unneeded(seen: Observation, grant: Grant, beyond: Sequence[str]) -> Finding:
    binding, ref = grant.binding, grant.binding.role_ref
    where = f"{binding.metadata.namespace}/" if binding.metadata.namespace else ""
    shown = "; ".join(beyond[:NAMED])
    more = f"; and {len(beyond) - NAMED} more" if len(beyond) > NAMED else ""
    return warning(
        "right-unneeded",
        f"service account {grant.account}",
        f"may {shown}{more}, by {binding.kind} {where}{binding.metadata.name} ({ref.kind} "
        f"{ref.name})",
        reason="no enabled controller needs it, and a process that gets the account's token has "
        "it. The binding is that of another manager, or of a controller that was turned off",
        fix=_revoke(seen, grant),
    )


def _revoke(seen: Observation, grant: Grant) -> str:
    """Returns the command that takes the rights from this account, and from no other."""
    binding = grant.binding
    name, namespace = binding.metadata.name, binding.metadata.namespace
    where = f"--namespace={namespace} " if namespace else ""
    subjects = binding.subjects or ()
    place = next((n for n, each in enumerate(subjects) if is_account(each, grant.account)), None)
    if place is None:
        group = ", ".join(each.name for each in subjects if each.kind == "Group")
        role = f"{binding.role_ref.kind} {binding.role_ref.name}"
        return f"bind {role} to the accounts that need it, instead of the group {group}"
    if grant.is_current:
        return restore_rights(seen.installation, seen.expected.given, seen.expected.account)
    if len(subjects) == 1:
        return f"kubectl {where}delete {binding.kind.lower()} {shlex.quote(name)}"
    test = {"op": "test", "path": f"/subjects/{place}/name", "value": subjects[place].name}
    patch = json.dumps([test, {"op": "remove", "path": f"/subjects/{place}"}])
    return (
        f"kubectl {where}patch {binding.kind.lower()} {shlex.quote(name)} --type=json "
        f"--patch={shlex.quote(patch)}"
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
        (
            *_unregistered(seen, configurations),
            *_blocking(hooks, endpoints),
            *_untrusted(configurations),
        ),
    )


def _unregistered(
    seen: Observation, configurations: Iterable[WebhookConfiguration]
) -> Iterator[Finding]:
    """Yields the configurations without which the API server asks no webhook of the manager."""
    there = {each.kind for each in configurations if each.metadata.name == NAME}
    for kind in sorted(seen.expected.webhooks - there):
        yield warning(
            "webhook-not-registered",
            f"{kind} {NAME}",
            "does not exist",
            reason="--webhooks enables webhooks that the API server therefore never asks",
            fix=register_webhooks(seen.installation, seen.expected.given),
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
