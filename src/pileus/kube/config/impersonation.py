"""The headers by which one user asks to act as another."""

import re
import string
from collections.abc import Iterator

from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.kubeconfig import User

_LEGAL = frozenset(string.ascii_letters + string.digits + "!#$&'*+-.^_`|~")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def impersonation(user: User) -> tuple[tuple[str, str], ...]:
    """Return the headers, some of which may occur several times; none if there is no `as`."""
    if not user.impersonate:
        if user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
            raise InvalidConfiguration("as-uid, as-groups and as-user-extra need `as`")
        return ()
    headers = tuple(_headers(user))
    for name, value in headers:
        if _CONTROL.search(value):
            raise InvalidConfiguration(f"the value for {name} holds control characters")
    return headers


def _headers(user: User) -> Iterator[tuple[str, str]]:
    yield "Impersonate-User", user.impersonate or ""
    if user.impersonate_uid:
        yield "Impersonate-Uid", user.impersonate_uid
    for group in user.impersonate_groups or ():
        yield "Impersonate-Group", group
    for key, values in (user.impersonate_extra or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{escaped(key)}", value


def escaped(key: str) -> str:
    """The key as part of a header's name: other bytes as %XX, which the server undoes."""
    return "".join(chr(byte) if chr(byte) in _LEGAL else f"%{byte:02X}" for byte in key.encode())
