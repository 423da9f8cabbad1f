"""Template expressions of the chart: values of flags, and when a controller or a rule is there.

They say in Helm's language what descriptors and `pileus.app.rights` say in Python. Tests render the
chart for many choices and compare with `pileus manifests`.
"""

import json
from collections.abc import Iterable

from pileus.admission.names import NAME, RESIZE, WEBHOOKS, WebhookNames
from pileus.app.registry import CONTROLLERS, AnyDescriptor
from pileus.kube.model.core_v1 import NODES
from pileus.objects.rights import Right

Condition = str


def flag(name: str, default: str = "") -> str:
    """Returns an expression for the value of a flag."""
    value = f'(index .Values.flags "{name}")'
    return f"({value} | default {default})" if default else value


DRY_RUN = flag("dry-run")
ACTS = f"(not {DRY_RUN})"
OWN_ACCOUNTS = f"(and {flag('use-service-account-credentials')} {ACTS})"
ELECTS = f'(and (ne (toString {flag("leader-elect")}) "false") {ACTS})'
SERVES = f'(ne (toString {flag("secure-port")}) "0")'
IDENTIFIES = f"(not {flag('cluster-id')})"
FROM_OBJECT = f'(not (hasPrefix "file:" {flag("ssh-keys-from")}))'
_ENTRIES = flag("controllers", '(list "*")')
_HOOKS = flag("webhooks", "list")
WEBHOOK_PORT = f'(ne (toString {flag("webhook-secure-port")}) "0")'
_GIVEN = " ".join(
    flag(f"webhook-{name}") for name in ("tls-cert-file", "tls-private-key-file", "cert-dir")
)
MANAGED = f"(not (or {_GIVEN}))"
_NEEDS = {
    "node-route-controller": (
        f'(ne (toString {flag("configure-cloud-routes")}) "false") {flag("cluster-cidr")}'
    ),
    "node-ipam-controller": flag("allocate-node-cidrs"),
    "ssh-key-controller": flag("ssh-keys-from"),
    "webhook-certificate-controller": '(include "pileus.webhooks.managed" .)',
}
"""What a controller needs besides being enabled, as `rights` of its descriptor."""


def guarded(condition: Condition, text: str) -> str:
    """Returns text that is rendered only if the condition holds."""
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def either(conditions: Iterable[Condition]) -> Condition:
    return f"(or {' '.join(conditions)})"


def serves(hook: WebhookNames) -> Condition:
    """Returns when the manager serves the webhook; a dry run serves none, but plans for it."""
    return f'(include "pileus.serves.{hook.name}" .)'


def served_when(hook: WebhookNames) -> Condition:
    """Returns the same, spelled out."""
    return both(
        f'(include "pileus.enabled" (dict "entries" {_HOOKS} "name" "{hook.name}" '
        f'"alias" "{hook.name}" "off" false))',
        WEBHOOK_PORT,
    )


def both(*conditions: Condition) -> Condition:
    return f"(and {' '.join(conditions)})"


def template_of(controller: AnyDescriptor) -> str:
    return f"pileus.runs.{controller.names.canonical}"


def runs(controller: AnyDescriptor) -> Condition:
    """Returns when the controller runs."""
    return f'(include "{template_of(controller)}" .)'


def condition_of(controller: AnyDescriptor) -> Condition:
    """Returns the same, spelled out."""
    names = controller.names
    enabled = (
        f'(include "pileus.enabled" (dict "entries" {_ENTRIES} "name" "{names.canonical}" '
        f'"alias" "{names.alias}" "off" {json.dumps(names.off_by_default)}))'
    )
    needs = _NEEDS.get(names.canonical)
    return both(enabled, needs) if needs else enabled


def applies(right: Right) -> Condition | None:
    """Returns when the manager's own role has this rule; None: always."""
    resource = right.resources[0] if right.resources else ""
    if NAME in right.names:
        return both(either(map(serves, WEBHOOKS)), MANAGED, ACTS)
    if right.verbs == ("get",) and resource in {"persistentvolumes", "storageclasses"}:
        return both(serves(RESIZE), ACTS)
    if resource in {"tokenreviews", "subjectaccessreviews", "configmaps"}:
        return SERVES
    if resource == "namespaces":
        return IDENTIFIES
    if resource == NODES.plural:
        return None
    watching = [each for each in CONTROLLERS if resource in {kind.plural for kind in each.kinds}]
    return either(map(runs, watching)) if watching else None
