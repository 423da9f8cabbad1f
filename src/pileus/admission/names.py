"""The webhooks of this manager, as flags, paths and configurations name them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pileus.version import PROGRAM

NAME = f"{PROGRAM}-webhook"
"""Of the webhook configurations, of the Service, and of the Secret with the certificates."""
OWNER_LABEL = {"pileus.dev/managed-by": NAME}
"""Of the Secret: one without it is never overwritten. Helm puts its own name into the label
`app.kubernetes.io/managed-by` of all objects of a release."""
DOMAIN = "webhooks.pileus.dev"
TIMEOUT = 5
"""Seconds that the API server waits for an answer (`timeoutSeconds` of the configurations)."""


class Effect(StrEnum):
    """Which kind of configuration registers a webhook."""

    MUTATING = "MutatingWebhookConfiguration"
    VALIDATING = "ValidatingWebhookConfiguration"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNames:
    """One webhook, as flags, paths and configurations name it."""

    name: str
    """In `--webhooks`, and in metrics."""
    effect: Effect
    operations: tuple[str, ...]
    resource: str
    """Plural, in the core group."""
    scope: str
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    """CEL expressions by name; the API server asks only if all of them are true."""

    @property
    def path(self) -> str:
        return f"/admission/{self.name}"

    @property
    def full_name(self) -> str:
        """Returns the name in its configuration, which has to be a domain name."""
        return f"{self.name}.{DOMAIN}"


LABELS = WebhookNames(
    name="persistentvolume-labels",
    effect=Effect.MUTATING,
    operations=("CREATE",),
    resource="persistentvolumes",
    scope="Cluster",
)
RESIZE = WebhookNames(
    name="persistentvolumeclaim-resize",
    effect=Effect.VALIDATING,
    operations=("UPDATE",),
    resource="persistentvolumeclaims",
    scope="Namespaced",
    conditions={
        "bound": "has(object.spec.volumeName) && object.spec.volumeName != ''",
        "size-changes": "object.spec.resources.requests != oldObject.spec.resources.requests",
    },
)
WEBHOOKS = (LABELS, RESIZE)


def chosen(entries: Sequence[str]) -> tuple[WebhookNames, ...]:
    """Returns the webhooks that `--webhooks` enables: the first match decides, `*` means all."""
    return tuple(each for each in WEBHOOKS if _is_enabled(each.name, entries))


def _is_enabled(name: str, entries: Sequence[str]) -> bool:
    for entry in entries:
        if entry in {name, f"-{name}"}:
            return entry == name
    return "*" in entries
