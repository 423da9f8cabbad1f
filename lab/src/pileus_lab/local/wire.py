"""Operations, answers and errors as JSON."""

from http import HTTPStatus
from typing import cast

import msgspec

from pileus.cloud import errors
from pileus.cloud.errors import CloudError, NotFound, Rejected, Throttled, Unavailable
from pileus.suggest import did_you_mean
from pileus_lab.local.model.catalogue import OPERATIONS
from pileus_lab.local.model.operation import Operation

PREFIX = "/v1/"
OPERATOR = "Pileus-Operator"
"""The header of those whom faults and rates do not concern."""
STATUS = {
    "NotFound": HTTPStatus.NOT_FOUND,
    "Conflict": HTTPStatus.CONFLICT,
    "Throttled": HTTPStatus.TOO_MANY_REQUESTS,
    "Unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "Unsupported": HTTPStatus.NOT_IMPLEMENTED,
    "Unauthorized": HTTPStatus.FORBIDDEN,
    "QuotaExceeded": HTTPStatus.FORBIDDEN,
}
"""By the error's name; all others are 422."""


class Refusal(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An error, as it is sent."""

    error: str
    message: str
    retry_after: float | None = None


def decode_operation(name: str, body: bytes) -> Operation[object]:
    """Errors: `NotFound` if there is no such operation, `Rejected` naming the field at fault."""
    request = OPERATIONS.get(name)
    if request is None:
        raise NotFound(f'no operation "{name}"{did_you_mean(name, OPERATIONS)}')
    try:
        return cast("Operation[object]", msgspec.json.decode(body or b"{}", type=request))
    except msgspec.MsgspecError as error:
        raise Rejected(f"{name}: {error}") from error


def encode_error(error: CloudError) -> tuple[int, bytes]:
    name = type(error).__name__
    wait = error.retry_after if isinstance(error, Throttled) else None
    status = STATUS.get(name, HTTPStatus.UNPROCESSABLE_ENTITY)
    return status, msgspec.json.encode(Refusal(name, str(error), wait))


def decode_error(body: bytes) -> CloudError:
    try:
        refusal = msgspec.json.decode(body, type=Refusal)
    except msgspec.MsgspecError:
        return Unavailable("the local cloud gave an answer that makes no sense")
    kind = getattr(errors, refusal.error, Unavailable)
    if kind is Throttled:
        return Throttled(refusal.message, retry_after=refusal.retry_after or 1.0)
    return cast("CloudError", kind(refusal.message))
