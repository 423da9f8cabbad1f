"""Users whom a trusted proxy names in request headers."""

from dataclasses import dataclass
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from pileus.server.identity import User

Headers = CIMultiDictProxy[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderNames:
    """Under which names a proxy passes on whom it speaks for; the first non-empty one counts."""

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefix: tuple[str, ...] = ("x-remote-extra-",)


def user_in(headers: Headers, names: HeaderNames) -> User | None:
    """The user whom the headers name; None if they name none. The sender must be trusted."""
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
