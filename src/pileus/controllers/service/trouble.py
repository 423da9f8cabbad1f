"""What an error is called on a Service, whether waiting may fix it, and what is reported."""

from pileus.cloud import errors as cloud
from pileus.controllers.service.status import State, Verdict
from pileus.kube import errors as kube
from pileus.objects.events import shortened
from pileus.runtime.failure import PassTooLong, is_expected

_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (cloud.QuotaExceeded, "QuotaExceeded", "free something in the cloud, or ask it for more"),
    (cloud.Unauthorized, "Unauthorized", "fix the provider's credentials or their permissions"),
    (cloud.Misconfigured, "Misconfigured", "correct what is named"),
    (cloud.Unsupported, "Unsupported", "do without what this cloud cannot do"),
    (cloud.Rejected, "Rejected", "the cloud refuses it as it is; change the Service"),
    (cloud.Throttled, "Throttled", "nothing needs to be done: it is tried again"),
    (cloud.Unavailable, "CloudUnavailable", "it is tried again until the cloud answers"),
    (cloud.Conflict, "Contested", "it is tried again"),
    (cloud.CloudError, "CloudError", "it is tried again"),
    (kube.Forbidden, "ServiceWriteForbidden", "give the manager the right to services/status"),
    (kube.ApiError, "ServiceWriteFailed", "it is tried again"),
    (PassTooLong, "TimedOut", "it is tried again"),
)
_ASKING = cloud.Throttled | cloud.Unavailable


def reason_of(error: Exception) -> str:
    """The reason of the condition: one CamelCase word, from a fixed set."""
    return _entry(error)[0]


def message_of(error: Exception) -> str:
    """What went wrong, in the words of who said it, and what to do about it."""
    said = str(error).rstrip(". ") or type(error).__name__
    advice = _entry(error)[1]
    if not is_expected(error):
        said, advice = f"internal error {type(error).__name__}", "see the manager's log"
    has_fix = "Fix: " in said  # a command, to be pasted as it is
    return shortened(f"{said} ({advice})" if advice and not has_fix else said)


def verdict_on(error: Exception) -> Verdict:
    state = State.UNKNOWN if isinstance(error, _ASKING) else State.FALSE
    return Verdict(state, reason_of(error), message_of(error))


def is_reported_at_once(error: Exception) -> bool:
    """Whether waiting before the report is of no use.

    True for what does not heal by itself (configuration, quota, rights), for what has taken long
    enough already, for bugs, and for errors that say so (`is_reported_at_once`).
    """
    heals = cloud.CloudError | kube.KubeError
    needs_action = cloud.Rejected | cloud.Unsupported | kube.Forbidden | kube.Invalid
    says_so = getattr(error, "is_reported_at_once", False) is True
    return says_so or isinstance(error, needs_action) or not isinstance(error, heals)


def _entry(error: Exception) -> tuple[str, str]:
    return next(
        ((name, advice) for kind, name, advice in _REASONS if isinstance(error, kind)),
        ("SyncFailed", ""),
    )
