"""A request and a response without a transport, and what a URL of the API means."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.identity import User
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.catalog import Catalog
from pileus_lab.apiserver.store import Key, encode
from pileus_lab.apiserver.tree import Obj

JSON = "application/json"
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
_CORE_DEPTH = 2
_GROUP_DEPTH = 3
_KNOWN = 1024
"""Number of parsed paths to cache: most requests are for the same few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Names in lower case."""
    body: bytes = field(default=b"", repr=False)
    peer: User | None = None
    """The user of the client certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()
    stream: AsyncGenerator[bytes] | None = None
    """If set, the body is streamed from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to a resource."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    request: Request
    user: User

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    def flag(self, name: str) -> bool:
        """Whether a query parameter is set to anything but false."""
        return self.query.get(name, "false").lower() not in {"false", "0"}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path of the API names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    watches: bool = False


@lru_cache(_KNOWN)
def locate(catalog: Catalog, path: str) -> Place | None:
    """Returns what the path names; None if it is not the path of a resource.

    Raises `Problem` 404 if the resource does not exist.
    """
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > _CORE_DEPTH:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > _GROUP_DEPTH:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if (group, version) not in catalog.groups():
        return None
    watches = rest[0] == "watch"
    rest = rest[1:] if watches else rest
    return _locate(catalog, (group, version), rest, watches=watches)


def _locate(catalog: Catalog, version: tuple[str, str], rest: list[str], *, watches: bool) -> Place:
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in {"status", "finalize"}:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    resource = catalog.find(*version, plural)
    if resource is None or len(rest) > 3:  # noqa: PLR2004 -- resource, name, subresource
        raise errors.unknown_resource()
    if bool(namespace) != resource.namespaced and (namespace or name):
        raise errors.unknown_resource()
    if subresource and all(s.name != subresource for s in resource.subresources):
        raise errors.unknown_resource()
    return Place(resource, namespace, name, subresource, watches)


def verb_of(place: Place, method: str, query: Mapping[str, str]) -> str:
    """Returns the RBAC verb. Raises `Problem` 405."""
    if method == "DELETE":
        verb = "delete" if place.name else "deletecollection"
    else:
        verb = _VERBS.get(method, "")
    if verb == "get" and not place.name:
        watched = query.get("watch", "false").lower() not in {"false", "0"}
        verb = "watch" if watched or place.watches else "list"
    if not verb or not _is_allowed(place, verb):
        raise errors.method_not_allowed()
    return verb


def _is_allowed(place: Place, verb: str) -> bool:
    if place.subresource:
        return any(
            s.name == place.subresource and verb in s.verbs for s in place.resource.subresources
        )
    if (verb == "create") is bool(place.name) and verb in {"create", "update", "patch"}:
        return False
    if verb == "create" and place.resource.namespaced and not place.namespace:
        return False
    return verb in place.resource.verbs


def answer(value: Obj, status: int = 200, *, warnings: tuple[str, ...] = ()) -> Response:
    return Response(status=status, body=encode(value), warnings=warnings)
