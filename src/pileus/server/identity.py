"""Who asks: the user behind a request, once authenticated."""

from dataclasses import dataclass, replace

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
    """Further facts, sorted by key, as Kubernetes passes them to authorizers."""


ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """The user as a member of the group of all who proved who they are."""
    if user.name == ANONYMOUS.name or {AUTHENTICATED, UNAUTHENTICATED} & set(user.groups):
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


class Unauthenticated(Exception):
    """Proof was given, but it does not hold. The text is for our log, not for the client."""


def is_text(value: str) -> bool:
    """Whether the bytes of a request's head, as aiohttp decodes them, were UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
