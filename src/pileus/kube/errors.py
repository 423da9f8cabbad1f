"""Errors of requests to an API server, by what the caller should do about them.

KubeError
├── ApiError               the server said no; subclasses by its `reason`, else by the HTTP code
│   ├── BadRequest           400  our request is at fault; retrying is useless
│   ├── Unauthorized         401  fix the credentials
│   ├── Forbidden            403  fix the rights (RBAC)
│   ├── NotFound             404  deleted; treat deletion as done
│   ├── MethodNotAllowed     405  this resource cannot do that
│   ├── NotAcceptable        406  this server cannot answer in that form
│   ├── AlreadyExists        409  read it, then update it
│   ├── Conflict             409  someone changed it meanwhile; read again
│   ├── Expired              410  the resource version is too old; list again
│   ├── TooLarge             413  send less
│   ├── UnsupportedMediaType 415  send another kind of patch
│   ├── Invalid              422  the object breaks a rule, which the message names
│   ├── TooManyRequests      429  nothing was done; wait `retry_after`
│   ├── InternalError        500  retry with back-off
│   ├── ServerTimeout        500  the server could not finish in time; retry
│   ├── ServiceUnavailable   503  wait `retry_after`, or back off
│   └── Timeout              504  it may have taken effect; read before trying again
├── Unreachable            no whole answer: network fault or deadline
├── Unreadable             an answer came, but not one that we understand
│   └── TooLong              more bytes than a working API server sends
├── CredentialsError       who we are could not be proved: file, command or account at fault
└── ReadOnly               this process may only look; the request was not sent
"""

from collections.abc import Mapping

import msgspec

from pileus.fix import one_line
from pileus.kube.decoding import Malformed, decode
from pileus.kube.model.meta import Int32, Wire

SHOWN = 300
"""Characters of a body that is quoted in a message, if it is not a Status."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds of a Retry-After that are honoured; a server that asks for more is asked again then."""


class StatusCause(Wire, frozen=True):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Wire, frozen=True):
    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: Int32 | None = None


class Status(Wire, frozen=True):
    """The error object of Kubernetes, in a response or a watch event."""

    kind: str = ""
    message: str | None = None
    reason: str | None = None
    code: Int32 | None = None
    details: StatusDetails | None = None


class KubeError(Exception):
    """Base of everything that the Kubernetes layer raises on purpose."""


class ApiError(KubeError):
    """The server answered with an error. The message names the request."""

    def __init__(
        self, request: str, status: int, said: Status, *, retry_after: float | None = None
    ) -> None:
        self.status = status
        self.reason = said.reason or ""
        self.message = said.message or ""
        self.details = said.details or StatusDetails()
        self.retry_after = retry_after
        """Seconds that the server asks to wait; None if it does not."""
        text = f"{request}: {status} {type(self).__name__}: {one_line(self.message)}"
        super().__init__(text.rstrip(": "))


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class MethodNotAllowed(ApiError):
    pass


class NotAcceptable(ApiError):
    pass


class AlreadyExists(ApiError):
    pass


class Conflict(ApiError):
    pass


class Expired(ApiError):
    pass


class TooLarge(ApiError):
    pass


class UnsupportedMediaType(ApiError):
    pass


class Invalid(ApiError):
    @property
    def is_about_uid(self) -> bool:
        """Whether a patch that names its object by UID met another one of the same name."""
        return any(cause.field == "metadata.uid" for cause in self.details.causes or ())


class TooManyRequests(ApiError):
    pass


class InternalError(ApiError):
    pass


class ServerTimeout(ApiError):
    pass


class ServiceUnavailable(ApiError):
    pass


class Timeout(ApiError):
    pass


class Unreachable(KubeError):
    """There is no complete answer. The message names request, host and possible effect."""

    def __init__(
        self,
        request: str,
        host: str,
        cause: str,
        *,
        timed_out: bool = False,
        may_have_acted: bool = False,
        untrusted: bool = False,
    ) -> None:
        self.host = host
        self.untrusted = untrusted
        """Whether the server has a certificate that is not trusted."""
        self.timed_out = timed_out
        self.may_have_acted = may_have_acted
        """Whether the server may have done what was asked, though we did not hear of it."""
        effect = "; it may have taken effect all the same" if may_have_acted else ""
        super().__init__(f"{request}: API server {host}: {cause}{effect}")


class Unreadable(KubeError):
    """The answer is not what the request asks for: not JSON, or a field of the wrong type."""


class TooLong(Unreadable):
    """The answer is longer than any that a working API server gives; the rest was not read."""


class CredentialsError(KubeError):
    """The credentials cannot be used; the message names the file, command or account."""


class ReadOnly(KubeError):
    """A read-only process (plan, dry run) tried to write; the request was not sent."""


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "NotAcceptable": NotAcceptable,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "RequestEntityTooLarge": TooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "StoreReadError": InternalError,
    "ServerTimeout": ServerTimeout,
    "ServiceUnavailable": ServiceUnavailable,
    "Timeout": Timeout,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Expired,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: Timeout,
}

_STATUS = msgspec.json.Decoder(Status)
_ANONYMOUS = 'User "system:anonymous"'
"""How API servers name the sender of a request without credentials."""


def refusal(
    method: str,
    path: str,
    code: int,
    *,
    headers: Mapping[str, str],
    body: bytes,
    credentials: str = "",
) -> ApiError:
    """The error for an answer whose code is not a success, whatever its body is.

    `credentials` is added to the message of a 401, and of a 403 for a request without credentials.
    """
    said = _status(body)
    kind = _BY_REASON.get(said.reason or "") or _by_code(code, method)
    is_anonymous = kind is Forbidden and _ANONYMOUS in (said.message or "")
    if (kind is Unauthorized or is_anonymous) and credentials:
        message = "; ".join(filter(None, (said.message, credentials)))
        said = msgspec.structs.replace(said, message=message)
    return kind(f"{method} {path}", code, said, retry_after=_retry_after(headers, said))


def refusal_in_stream(path: str, body: bytes) -> ApiError:
    """The error for an ERROR event of a watch, whose object is a Status."""
    said = _status(body)
    return refusal("WATCH", path, said.code or 500, headers={}, body=body)


def _by_code(code: int, method: str) -> type[ApiError]:
    if code == 409 and method == "POST":  # noqa: PLR2004 -- HTTP's own number
        return AlreadyExists
    return _BY_CODE.get(code, ApiError)


def _status(body: bytes) -> Status:
    try:
        said = decode(_STATUS, body)
    except Malformed:
        return Status(message=_quote(body))
    return said if said.kind == "Status" else Status(message=_quote(body))


def _quote(body: bytes) -> str:
    text = " ".join(body[: 4 * SHOWN].decode(errors="replace").split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _retry_after(headers: Mapping[str, str], said: Status) -> float | None:
    asked = headers.get("Retry-After", "").strip()
    if asked.isdecimal():
        return min(float(asked), LONGEST_RETRY_AFTER)
    seconds = said.details.retry_after_seconds if said.details else None
    if seconds is None or seconds <= 0:
        return None
    return min(float(seconds), LONGEST_RETRY_AFTER)
