"""Errors of the API with HTTP status, reason, message and details of the real server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.tree import Obj


@dataclass(frozen=True, slots=True)
class Subject:
    """What an error is about: a resource (`nodes`), by group."""

    group: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(slots=True)
class Problem(Exception):
    """A refused request; becomes a Status object."""

    code: int
    reason: str
    message: str
    details: Obj | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    metadata: Obj = field(default_factory=dict[str, object])

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"

    def status(self) -> Obj:
        """Returns the Status object that the client gets."""
        status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata}
        status |= {"status": "Failure", "message": self.message}
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _about(subject: Subject, name: str) -> Obj:
    parts = {"name": name, "group": subject.group, "kind": subject.plural}
    return {k: v for k, v in parts.items() if v}


def not_found(subject: Subject, name: str) -> Problem:
    return Problem(404, "NotFound", f'{subject} "{name}" not found', _about(subject, name))


def unknown_resource() -> Problem:
    message = "the server could not find the requested resource"
    return Problem(404, "NotFound", message, {})


def method_not_allowed() -> Problem:
    message = "the server does not allow this method on the requested resource"
    return Problem(405, "MethodNotAllowed", message, {})


def already_exists(subject: Subject, name: str) -> Problem:
    message = f'{subject} "{name}" already exists'
    return Problem(409, "AlreadyExists", message, _about(subject, name))


def conflict(subject: Subject, name: str, why: str) -> Problem:
    message = f'Operation cannot be fulfilled on {subject} "{name}": {why}'
    return Problem(409, "Conflict", message, _about(subject, name))


def stale(subject: Subject, name: str) -> Problem:
    return conflict(
        subject,
        name,
        "the object has been modified; please apply your changes to the latest version "
        "and try again",
    )


def invalid(group: str, kind: str, name: str, faults: Sequence[Fault]) -> Problem:
    told = str(faults[0]) if len(faults) == 1 else f"[{', '.join(map(str, faults))}]"
    whole = f"{kind}.{group}" if group else kind
    details = _about(Subject(group, kind), name)
    details["causes"] = [fault.cause() for fault in faults]
    return Problem(422, "Invalid", f'{whole} "{name}" is invalid: {told}', details)


def bad_request(message: str) -> Problem:
    return Problem(400, "BadRequest", message)


def unauthorized() -> Problem:
    return Problem(401, "Unauthorized", "Unauthorized")


def forbidden(subject: Subject, name: str, why: str) -> Problem:
    whom = f'{subject} "{name}"' if name else str(subject)
    return Problem(403, "Forbidden", f"{whom} is forbidden: {why}", _about(subject, name))


def unsupported_media(accepted: Sequence[str]) -> Problem:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return Problem(415, "UnsupportedMediaType", message)


def unsupported_patch(accepted: Sequence[str]) -> Problem:
    return Problem(
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
        {},
        headers={"Accept-Patch": ", ".join(accepted)},
    )


def not_acceptable(offered: Sequence[str]) -> Problem:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
    return Problem(406, "NotAcceptable", message, {})


def too_large(limit: int) -> Problem:
    message = f"Request entity too large: limit is {limit}"
    return Problem(413, "RequestEntityTooLarge", message)


def too_many_requests() -> Problem:
    return Problem(
        429,
        "TooManyRequests",
        "Too many requests, please try again later.",
        {"retryAfterSeconds": 1},
        headers={"Retry-After": "1"},
    )


def expired(message: str, *, metadata: Obj | None = None) -> Problem:
    return Problem(410, "Expired", message, metadata=metadata or {})


def version_too_large(asked: int, current: int) -> Problem:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Problem(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": 1},
        headers={"Retry-After": "1"},
    )


def internal(message: str) -> Problem:
    details: Obj = {"causes": [{"message": message}]}
    return Problem(500, "InternalError", f"Internal error occurred: {message}", details)
