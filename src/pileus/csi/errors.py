"""The gRPC code of every error, as the CSI specification asks for it."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from grpclib.const import Status

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.volumes.busy import Busy
from pileus.volumes.commands import HostError
from pileus.volumes.devices import DeviceMissing, ForeignData
from pileus.volumes.mounts import WrongMount
from pileus.volumes.operations import StillPending


class CsiError(Exception):
    """The answer to a request that failed: a gRPC code and a message for people."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid(message: str) -> CsiError:
    return CsiError(Status.INVALID_ARGUMENT, message)


CODES: Mapping[type[Exception], Status] = {
    Busy: Status.ABORTED,
    StillPending: Status.ABORTED,
    Conflict: Status.ABORTED,
    NotFound: Status.NOT_FOUND,
    QuotaExceeded: Status.RESOURCE_EXHAUSTED,
    Unauthorized: Status.PERMISSION_DENIED,
    Misconfigured: Status.INVALID_ARGUMENT,
    Rejected: Status.INVALID_ARGUMENT,
    Throttled: Status.UNAVAILABLE,
    Unavailable: Status.UNAVAILABLE,
    Unsupported: Status.UNIMPLEMENTED,
    CloudError: Status.INTERNAL,
    WrongMount: Status.ALREADY_EXISTS,
    DeviceMissing: Status.UNAVAILABLE,
    ForeignData: Status.FAILED_PRECONDITION,
    HostError: Status.INTERNAL,
}
"""The code of each error; the most special class counts."""


REFUSED: Mapping[type[CloudError], Status] = {
    Conflict: Status.FAILED_PRECONDITION,
    Rejected: Status.FAILED_PRECONDITION,
}
"""Codes of changes of one volume or snapshot: it is in use, or not the cluster's."""


def code_of(error: Exception) -> Status | None:
    """Returns the code of an error; None: it is a bug."""
    if isinstance(error, CsiError):
        return error.status
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)


@contextmanager
def answering(special: Mapping[type[CloudError], Status]) -> Generator[None]:
    """In the block, errors of these very classes have these codes."""
    try:
        yield
    except CloudError as error:
        if type(error) not in special:
            raise
        raise CsiError(special[type(error)], str(error)) from error
