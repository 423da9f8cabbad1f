"""Requests to Keystone v3 for a token, and its answers. Pure."""

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.http import Answer
from pileus.dataclass import dataclass
from pileus.providers.openstack.catalogue import Catalogue, Entry
from pileus.providers.openstack.config import Auth
from pileus.providers.openstack.config_checks import (
    Method,
    method_of,
    password_of,
    project_domain,
    user_domain,
    user_id_of,
)

MARGIN = 300.0
"""Seconds before its end at which a token is renewed; a fifth of its lifetime if that is less."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of one project. Times are those of the event loop."""

    id: str = field(repr=False)
    project_id: str
    catalogue: Catalogue = field(repr=False)
    renew_at: float
    expires_at: float
    roles: tuple[str, ...] = ()
    """Names of the roles in the project."""
    issued: datetime | None = None
    """When Keystone answered, by its own clock."""


def keystone_url(auth_url: str) -> str:
    """Returns the URL of Keystone's API v3, from one with or without its version."""
    url = auth_url.rstrip("/")
    for suffix in ("/auth/tokens", "/tokens"):
        url = url.removesuffix(suffix)
    for version in ("/v3", "/v2.0"):
        url = url.removesuffix(version)
    return f"{url}/v3"


def token_request(auth: Auth) -> Mapping[str, Any]:
    """Returns the body of a request for a token."""
    request: dict[str, Any] = {"identity": _identity(auth)}
    if scope := _scope(auth):
        request["scope"] = scope
    return {"auth": request}


def _identity(auth: Auth) -> Mapping[str, Any]:
    method = method_of(auth)
    match method:
        case Method.APPLICATION_CREDENTIAL:
            proof = _application_credential(auth)
        case Method.TOKEN:
            proof = {"id": auth.token}
        case Method.PASSWORD:
            proof = {"user": {**_user(auth), "password": password_of(auth)}}
    return {"methods": [method.value], method.value: proof}


def _application_credential(auth: Auth) -> Mapping[str, Any]:
    secret = {"secret": auth.application_credential_secret}
    if auth.application_credential_id:
        return {"id": auth.application_credential_id, **secret}
    return {"name": auth.application_credential_name, "user": _user(auth), **secret}


def _user(auth: Auth) -> Mapping[str, Any]:
    user_id = user_id_of(auth)
    return {"id": user_id} if user_id else {"name": auth.username, "domain": user_domain(auth)}


def _scope(auth: Auth) -> Mapping[str, Any]:
    if method_of(auth) is Method.APPLICATION_CREDENTIAL:
        return {}
    if auth.trust_id:
        return {"OS-TRUST:trust": {"id": auth.trust_id}}
    if auth.tenant_id:
        return {"project": {"id": auth.tenant_id}}
    if auth.tenant_name:
        return {"project": {"name": auth.tenant_name, "domain": project_domain(auth)}}
    return {}


def is_used_as_is(auth: Auth) -> bool:
    """Whether the token of the configuration is used itself: it names no project to ask one for."""
    return method_of(auth) is Method.TOKEN and not _scope(auth)


def identity_of(auth: Auth) -> str:
    """Returns who the credentials stand for, for errors and logs. Without secrets."""
    method = method_of(auth)
    if method is Method.APPLICATION_CREDENTIAL:
        name = auth.application_credential_id or auth.application_credential_name
        return f"application credential {name}"
    if method is Method.TOKEN:
        return "the token"
    user = user_id_of(auth) or auth.username
    return f"user {user}, trust {auth.trust_id}" if auth.trust_id else f"user {user}"


class _Project(msgspec.Struct):
    id: str


class _Role(msgspec.Struct):
    name: str = ""


class _Token(msgspec.Struct):
    expires_at: str
    issued_at: str = ""
    project: _Project | None = None
    catalog: tuple[Entry, ...] = ()
    roles: tuple[_Role, ...] = ()


class _Body(msgspec.Struct):
    token: _Token


def token_of(answer: Answer, now: float, token_id: str = "") -> Token:
    """Returns the token of an answer that was received at `now`; `token_id`: if it was known.

    Lifetimes are measured by the clock of Keystone, so that the local one need not be right.
    Raises `Unavailable` for an unexpected answer; `Misconfigured` if the token has no project.
    """
    try:
        token = msgspec.json.decode(answer.body, type=_Body).token
        issued = _asked(answer, token)
        lifetime = (_time(token.expires_at) - issued).total_seconds()
    except (msgspec.DecodeError, ValueError) as error:
        raise Unavailable(answer.described(f"unexpected answer: {error}")) from None
    found = token_id or answer.headers.get("x-subject-token", "")
    if not found:
        raise Unavailable(answer.described("unexpected answer: it has no X-Subject-Token"))
    if token.project is None:
        raise Misconfigured(
            "[Global] tenant-id: the credentials are not for a project. Fix: set tenant-id, or "
            "tenant-name and tenant-domain-name"
        )
    margin = min(MARGIN, lifetime / 5)
    return Token(
        found,
        token.project.id,
        Catalogue(entries=token.catalog, project_id=token.project.id),
        renew_at=now + lifetime - margin,
        expires_at=now + lifetime,
        roles=tuple(role.name for role in token.roles if role.name),
        issued=issued,
    )


def _asked(answer: Answer, token: _Token) -> datetime:
    """Returns the time at which Keystone answered."""
    try:
        return _in_utc(parsedate_to_datetime(answer.headers["date"]))
    except (KeyError, ValueError):
        return _time(token.issued_at)


def _time(text: str) -> datetime:
    return _in_utc(datetime.fromisoformat(text))


def _in_utc(time: datetime) -> datetime:
    """Keystone's times are UTC, also where they name no zone."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
