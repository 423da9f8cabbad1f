"""What users say on a Service about how it is looked after. Pure."""

from enum import StrEnum

from pileus.kube.model.core_v1 import Service
from pileus.suggest import did_you_mean

MANAGE = "pileus.dev/manage"
ADOPT = "pileus.dev/adopt"


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


class UnknownMode(Exception):
    """The Service says something that we do not understand, so nothing is done for it."""


def mode_of(service: Service) -> Mode:
    """Errors: `UnknownMode`."""
    text = annotation(service, MANAGE)
    if text is None:
        return Mode.FULL
    if text not in set(Mode):
        known = ", ".join(Mode)
        raise UnknownMode(
            f'annotation {MANAGE} must be one of {known}, not "{text}"{did_you_mean(text, Mode)}'
        )
    return Mode(text)


def adopted_by(service: Service) -> str:
    """The id of the balancer that the user says is this Service's; "" if none."""
    return (annotation(service, ADOPT) or "").strip()


def annotation(service: Service, name: str) -> str | None:
    return (service.metadata.annotations or {}).get(name)
