"""Impersonation: a request with `Impersonate-…` headers acts as another user, if allowed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.access import Attempt, Authorizer
from pileus_lab.apiserver.identity import (
    ACCOUNT_PREFIX,
    ANONYMOUS,
    UNAUTHENTICATED,
    User,
    authenticated,
)

PREFIX = "impersonate-"
SEPARATOR = "\n"
"""Separates values of a header that was sent more than once; no value can contain it."""
_EXTRA = "impersonate-extra-"
_GROUP = "authentication.k8s.io"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The user that the headers request."""

    name: str
    uid: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])

    def attempts(self) -> Iterator[Attempt]:
        """Yields every right that is needed to act as this user."""
        account = _account(self.name)
        if account:
            namespace, name = account
            yield _attempt("serviceaccounts", name, namespace=namespace)
        else:
            yield _attempt("users", self.name)
        for group in self.groups:
            yield _attempt("groups", group)
        for key, values in self.extra.items():
            for value in values:
                yield _attempt("userextras", value, group=_GROUP, subresource=key)
        if self.uid:
            yield _attempt("uids", self.uid, group=_GROUP)

    def user(self) -> User:
        groups, account = self.groups, _account(self.name)
        if account and not groups:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
        if self.name == ANONYMOUS.name and UNAUTHENTICATED not in groups:
            groups = (*groups, UNAUTHENTICATED)
        return authenticated(User(self.name, groups, self.uid, self.extra))


def impersonated(headers: Mapping[str, str], user: User, authorizer: Authorizer) -> User:
    """Returns the user that the request acts as: `user`, or the one in its headers.

    Raises `Problem` 403 if a right is missing, 400 if no user is named.
    """
    wanted = _wanted(headers)
    if wanted is None:
        return user
    for attempt in wanted.attempts():
        if authorizer.allows(user, attempt) is None:
            subject = errors.Subject(attempt.group, attempt.target)
            raise errors.forbidden(subject, attempt.name, attempt.refusal(user))
    return wanted.user()


def _wanted(headers: Mapping[str, str]) -> _Wanted | None:
    given = {name: value for name, value in headers.items() if name.startswith(PREFIX) and value}
    if not given:
        return None
    name = given.get("impersonate-user", "")
    if not name:
        parts = ", ".join(sorted(given))
        raise errors.bad_request(f"requested {parts} without impersonating a user name")
    return _Wanted(
        name,
        given.get("impersonate-uid", ""),
        tuple(filter(None, given.get("impersonate-group", "").split(SEPARATOR))),
        {
            unquote(header.removeprefix(_EXTRA)): values.split(SEPARATOR)
            for header, values in given.items()
            if header.startswith(_EXTRA)
        },
    )


def _attempt(
    resource: str, name: str, *, group: str = "", subresource: str = "", namespace: str = ""
) -> Attempt:
    return Attempt(
        verb="impersonate",
        group=group,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _account(user: str) -> tuple[str, str] | None:
    """Returns namespace and name of the service account, if the user is one."""
    namespace, _, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
    is_one = user.startswith(ACCOUNT_PREFIX) and namespace and name and ":" not in name
    return (namespace, name) if is_one else None
