"""Errors that ported providers raise, with the texts and effects of the Go framework."""

from pileus.cloud.errors import CloudError, NotFound, Unavailable, Unsupported


class ClassicError(Exception):
    """Base of the errors with a meaning of their own. Any other exception fails the call."""


class InstanceNotFound(ClassicError):
    def __init__(self, message: str = "instance not found") -> None:
        super().__init__(message)


class Unimplemented(ClassicError):
    """Go's `NotImplemented`, which is the name of something else in Python."""

    def __init__(self, message: str = "unimplemented") -> None:
        super().__init__(message)


class ImplementedElsewhere(ClassicError):
    """Another controller implements this load balancer: nothing to do here."""

    def __init__(self, message: str = "implemented by alternate to cloud provider") -> None:
        super().__init__(message)


class DiskNotFound(ClassicError):
    def __init__(self, message: str = "disk is not found") -> None:
        super().__init__(message)


class RetryError(ClassicError):
    """The call is to be repeated after a fixed time. Calls for other objects do not wait.

    To slow down all calls, raise `pileus.cloud.errors.Throttled`.
    """

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.retry_after = delay
        """Seconds."""


class ProviderFailed(Unavailable):
    """Any other exception of a ported provider. Whether a retry helps is not known."""

    is_reported_at_once = True
    """As in Go: the event on the object is not delayed until a retry has failed."""
    is_reported_by_text = True
    """As in Go: another text is another event. Their kind says nothing about the failure."""


class NilStatus(ProviderFailed):
    def __init__(self) -> None:
        super().__init__("service status returned by EnsureLoadBalancer is nil")

    is_whole_message = True
    """As in Go: the event does not say which operation failed, because the message does."""


class Postponed(Unavailable):
    """A `RetryError` as an error of the contract: only its own object waits."""

    is_reported_by_text = True

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds."""


def translated(error: Exception) -> CloudError:
    """Returns the contract's error for an exception. A `RetryError` may be its cause."""
    retry = _retry_in_chain(error)
    if retry is not None:
        return Postponed(str(error), retry_after=retry.retry_after)
    match error:
        case CloudError():
            return error
        case InstanceNotFound() | DiskNotFound():
            return NotFound(str(error))
        case Unimplemented() | ImplementedElsewhere():
            return Unsupported(str(error))
        case _:
            return ProviderFailed(text_of(error))


def balancer_error(error: Exception, *, may_postpone: bool = True) -> CloudError:
    """As `translated`, for load balancers: there no error means that something does not exist.

    Without `may_postpone`, a `RetryError` is a failure like any other.
    """
    found = translated(error)
    if isinstance(found, NotFound) or (isinstance(found, Postponed) and not may_postpone):
        return ProviderFailed(text_of(error))
    return found


_CRYPTIC = (LookupError, TypeError, AttributeError, NameError, ArithmeticError, AssertionError)
"""Built-in exceptions that are shown with their class: `KeyError: 'region'`."""


def text_of(error: Exception) -> str:
    """Returns the text of an exception, as Go prints errors."""
    text = str(error)
    if isinstance(error, _CRYPTIC):
        return f"{type(error).__name__}: {text}"
    return text or type(error).__name__


def is_unexpected(error: Exception) -> bool:
    """Whether the exception has no meaning of its own, so that its traceback is needed."""
    expected = isinstance(error, ClassicError | CloudError)
    return not expected and _retry_in_chain(error) is None


def _retry_in_chain(error: BaseException | None) -> RetryError | None:
    """An error that was raised again `from` itself is its own cause."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        if isinstance(error, RetryError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None
