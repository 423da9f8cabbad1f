"""What an error is called on a node, and whether waiting could mend it. Pure."""

from pileus.cloud import errors as cloud
from pileus.controllers.node.addresses import NodeIpRefused
from pileus.kube import errors as kube

LONGEST = 1000
"""Characters of an error's text that go into an event or a condition."""

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NodeIpRefused, "ProvidedNodeIPRefused"),
    (cloud.NotFound, "InstanceNotFound"),
    (cloud.Throttled, "CloudThrottled"),
    (cloud.Unavailable, "CloudUnavailable"),
    (cloud.Unauthorized, "CloudUnauthorized"),
    (cloud.Rejected, "CloudLookupRejected"),
    (cloud.CloudError, "CloudLookupFailed"),
    (kube.Conflict, "NodeContested"),
    (kube.Invalid, "NodeWriteInvalid"),
    (kube.Forbidden, "NodeWriteForbidden"),
    (kube.TooLarge, "NodeTooLarge"),
    (kube.ApiError, "NodeWriteFailed"),
)


def reason_of(error: Exception) -> str:
    """The reason of the event and of the condition: one CamelCase word, from a fixed set."""
    return next(
        (name for kind, name in _REASONS if isinstance(error, kind)), "InitializationFailed"
    )


def message_of(error: Exception) -> str:
    return shortened(str(error) or type(error).__name__)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def is_lasting(error: Exception) -> bool:
    """Whether it takes someone to mend it, so that there is no use in waiting before telling."""
    lasting = cloud.Rejected | kube.Invalid | kube.Forbidden | kube.TooLarge
    return isinstance(error, lasting)
