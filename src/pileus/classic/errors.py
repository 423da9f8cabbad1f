"""The errors that ported providers raise, with the texts and the effects of the Go framework's."""

from pileus.cloud.errors import CloudError, NotFound, Unavailable, Unsupported


class ClassicError(Exception):
    """Base of the errors that have a meaning of their own; any other exception just fails."""


class InstanceNotFound(ClassicError):
    def __init__(self, message: str = "instance not found") -> None:
        super().__init__(message)


class Unimplemented(ClassicError):
    """Go's `NotImplemented`, which is the name of something else in Python."""

    def __init__(self, message: str = "unimplemented") -> None:
        super().__init__(message)


class ImplementedElsewhere(ClassicError):
    """Someone else makes this load balancer; here is nothing to do."""

    def __init__(self, message: str = "implemented by alternate to cloud provider") -> None:
        super().__init__(message)


class DiskNotFound(ClassicError):
    def __init__(self, message: str = "disk is not found") -> None:
        super().__init__(message)


class RetryError(ClassicError):
    """What was asked for is to be asked for again after a fixed time; nothing else need wait.

    Where the cloud wants fewer requests altogether, raise `pileus.cloud.errors.Throttled`.
    """

    def __init__(self, message: str, delay: float) -> None:
        super().__init__(message)
        self.retry_after = delay
        """Seconds."""


class ProviderFailed(Unavailable):
    """Any other exception of a ported provider. Whether it heals by itself is not known."""

    is_reported_at_once = True
    """As in Go: events on the object do not wait to see whether it heals."""


class Postponed(Unavailable):
    """A `RetryError` in the contract's words: its object waits, and the cloud may be asked."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds."""


def translated(error: Exception) -> CloudError:
    """The contract's error for what a ported provider raised; a `RetryError` may be wrapped."""
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
            return ProviderFailed(said_by(error))


_CRYPTIC = (LookupError, TypeError, AttributeError, NameError, ArithmeticError, AssertionError)
"""Built-in exceptions whose text alone says too little: `KeyError: 'region'`."""


def said_by(error: Exception) -> str:
    """The text of an exception, as Go would print it."""
    text = str(error)
    if isinstance(error, _CRYPTIC):
        return f"{type(error).__name__}: {text}"
    return text or type(error).__name__


def is_unexpected(error: Exception) -> bool:
    """Whether only its traceback explains the exception: it has no meaning of its own here."""
    expected = isinstance(error, ClassicError | CloudError)
    return not expected and _retry_in_chain(error) is None


def _retry_in_chain(error: BaseException | None) -> RetryError | None:
    while error is not None:
        if isinstance(error, RetryError):
            return error
        error = error.__cause__
    return None
