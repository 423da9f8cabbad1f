"""The authenticated user of a request, and users that a trusted proxy names in its headers."""

from dataclasses import replace
from datetime import datetime
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from pileus.dataclass import dataclass

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"

Extra = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Extra = ()
    """Extra attributes, sorted by key, as Kubernetes passes them to authorizers."""


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Returns the user as a member of `system:authenticated`."""
    if user.name == ANONYMOUS.name or {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What a verified client certificate says of its holder."""

    common_name: str
    """The last one of the subject; "" if it has none."""
    organizations: tuple[str, ...]
    fingerprint: str
    """SHA-256 of the certificate, in hex."""
    expires: datetime


class Unauthenticated(Exception):
    """The credentials are invalid. The text is for the log, not for the client."""


def is_text(value: str) -> bool:
    """Returns whether a header or path, as decoded by the server, was UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


Headers = CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderNames:
    """Names of the headers in which a proxy names the user; the first non-empty one counts."""

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefix: tuple[str, ...] = ("x-remote-extra-",)


def user_in(headers: Headers, names: HeaderNames) -> User | None:
    """Returns the user in the headers, or None. The sender must be a trusted proxy."""
    username = _first(headers, names.username)
    if not username:
        return None
    groups = [value for name in names.group for value in headers.getall(name, []) if value]
    return User(
        username,
        uid=_first(headers, names.uid),
        groups=tuple(groups),
        extra=_extra(headers, names.extra_prefix),
    )


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


def _extra(headers: Headers, prefixes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for prefix in prefixes:
        for name, value in headers.items():
            if name.lower().startswith(prefix.lower()):
                key = unquote(name[len(prefix) :].lower())
                found.setdefault(key, []).append(value)
    return tuple(sorted((key, tuple(values)) for key, values in found.items()))
