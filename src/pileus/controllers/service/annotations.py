"""The annotations of a Service that the manager itself reads. Pure."""

from enum import StrEnum

from pileus.cloud.options import CORE_NAMESPACE, TEXT, Option, Options, one_of
from pileus.kube.model.core_v1 import Service

MANAGE = f"{CORE_NAMESPACE}manage"
ADOPT = f"{CORE_NAMESPACE}adopt"
ENSURED = f"{CORE_NAMESPACE}ensured"


class Mode(StrEnum):
    """How much of a Service's balancer is ours."""

    FULL = "full"
    """All of it: made, changed and deleted with the Service."""
    MEMBERS = "members"
    """Its members alone; the rest is someone else's, and so is its end."""
    OBSERVE = "observe"
    """Nothing of it: it is only looked at, and its addresses are written to the Service."""
    NONE = "none"
    """Nothing at all, not even the Service's status."""

    @property
    def writes(self) -> bool:
        """Whether anything in the cloud is changed for it."""
        return self in {Mode.FULL, Mode.MEMBERS}


ANNOTATIONS = Options(
    Option(
        MANAGE,
        one_of(*Mode),
        Mode.FULL.value,
        "How much of the load balancer Pileus manages: everything; its members only; nothing, but "
        "its addresses are published; nothing at all.",
    ),
    Option(ADOPT, TEXT, "", "ID of an existing load balancer that this Service takes over."),
    Option(
        ENSURED,
        TEXT,
        "",
        "Written by Pileus with a provider ported from Go: hashes of what the provider was last "
        "given. Remove it to have the load balancer ensured again.",
    ),
    namespace=CORE_NAMESPACE,
)


class InvalidAnnotation(Exception):
    """An annotation of ours has an unknown name or value, so nothing is done for the Service."""


def mode_of(service: Service) -> Mode:
    """Return how much of the Service's load balancer is managed.

    Raises InvalidAnnotation if any annotation of ours is misspelt: it may ask for protection.
    """
    metadata = service.metadata
    given = metadata.annotations or {}
    if problems := ANNOTATIONS.problems(given):
        fixes = " ".join(ANNOTATIONS.corrections(given))
        raise InvalidAnnotation(
            f"{'; '.join(problems)}. Fix: kubectl annotate service -n {metadata.namespace} "
            f"{metadata.name} --overwrite {fixes}"
        )
    return Mode(given.get(MANAGE, Mode.FULL))


def adopted_by(service: Service) -> str:
    """The id of the balancer that the user says is this Service's; "" if none."""
    return (annotation(service, ADOPT) or "").strip()


def annotation(service: Service, name: str) -> str | None:
    return (service.metadata.annotations or {}).get(name)
