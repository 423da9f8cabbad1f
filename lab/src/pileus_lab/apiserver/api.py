"""The server without sockets: one request in, one response out."""

from collections.abc import Callable
from dataclasses import replace

from pileus.telemetry.log import Log
from pileus_lab.apiserver import discovery, errors, representation
from pileus_lab.apiserver.access import Attempt
from pileus_lab.apiserver.call import Call, Place, Request, Response, answer, locate, verb_of
from pileus_lab.apiserver.errors import Problem
from pileus_lab.apiserver.identity import ANONYMOUS, ISSUER, User, authenticated
from pileus_lab.apiserver.impersonation import impersonated
from pileus_lab.apiserver.selector import selected_name
from pileus_lab.apiserver.state import BODY_LIMIT, State
from pileus_lab.apiserver.store import Entry, encode
from pileus_lab.apiserver.tree import Obj
from pileus_lab.apiserver.verbs import delete, read, review, watch, write

log = Log(__name__)
TEXT = "text/plain; charset=utf-8"
HEALTH = frozenset({"healthz", "livez", "readyz"})
Work = Callable[[State, Call], Response]

_VERBS: dict[str, Work] = {
    "create": write.create,
    "update": write.update,
    "patch": write.patch,
    "delete": delete.delete,
    "deletecollection": delete.delete_collection,
}
_SUBRESOURCES: dict[tuple[str, str], Work] = {
    ("serviceaccounts", "token"): review.request_token,
    ("pods", "eviction"): delete.evict,
    ("pods", "binding"): write.bind,
    ("namespaces", "finalize"): write.finalize,
}


class Api:
    """Answers requests. Each is handled at once, without suspension, so nothing happens halfway."""

    def __init__(self, state: State) -> None:
        self.state = state

    def respond(self, request: Request) -> Response:
        """Returns the response; never raises for mistakes of a client."""
        try:
            return self._respond(request)
        except Problem as refused:
            return refusal(refused)
        except RecursionError:
            return refusal(errors.bad_request("the object is nested too deeply"))

    def _respond(self, request: Request) -> Response:
        user = impersonated(request.headers, self._authenticate(request), self.state.authorizer)
        place = locate(self.state.catalog, request.path)
        if place is None:
            return self._other(request, user)
        verb = verb_of(place, request.method, request.query)
        call = Call(
            verb=verb,
            resource=place.resource,
            namespace=place.namespace,
            name=place.name,
            subresource=place.subresource,
            request=request,
            user=user,
        )
        self._authorize(call, place)
        if len(request.body) > BODY_LIMIT:
            raise errors.too_large(BODY_LIMIT)
        return self._work(call)

    def _authenticate(self, request: Request) -> User:
        header = request.headers.get("authorization", "")
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return request.peer or ANONYMOUS
        found = review.user_of_token(self.state, token.strip(), [ISSUER])
        if found is None:
            if request.peer is not None:
                return request.peer
            raise errors.unauthorized()
        return authenticated(found[0])

    def _authorize(self, call: Call, place: Place) -> None:
        if self.state.authorizer.trusts(call.user):
            return
        attempt = Attempt(
            verb=call.verb,
            group=call.resource.group,
            resource=call.resource.plural,
            subresource=call.subresource,
            namespace=call.namespace or (call.name if call.resource.kind == "Namespace" else ""),
            name=place.name or _selected_name(call),
        )
        if self.state.authorizer.allows(call.user, attempt) is None:
            refused = replace(attempt, namespace=call.namespace)
            subject = errors.Subject(call.resource.group, attempt.target)
            told = errors.forbidden(subject, attempt.name, refused.refusal(call.user))
            if told.details is not None:
                told.details["kind"] = call.resource.plural
            raise told

    def _work(self, call: Call) -> Response:
        if call.resource.verbs == ("create",):
            return review.review(self.state, call)
        if call.verb in {"get", "list", "watch"}:
            return self._read(call)
        special = _SUBRESOURCES.get((call.resource.plural, call.subresource))
        work = special or _VERBS[call.verb]
        return work(self.state, call)

    def _read(self, call: Call) -> Response:
        wanted = representation.choose(call.request.headers.get("accept", ""))
        if call.subresource == "log":
            return _logs(self.state, call)
        if wanted.form == "Table":
            return self._table(call)
        if wanted.form:
            return self._metadata(call)
        if call.verb == "get":
            return read.get(self.state, call)
        if call.verb == "list":
            return read.listing(self.state, call)
        return watch.watch(self.state, call)

    def _table(self, call: Call) -> Response:
        include = call.query.get("includeObject", "Metadata")

        def render(entries: list[Entry], meta: Obj) -> bytes:
            now = self.state.clock.now()
            return representation.render(call.resource, entries, meta, now=now, include=include)

        def one(entry: Entry) -> bytes:
            return render([entry], {"resourceVersion": str(entry.version)})

        if call.verb == "watch":
            return watch.watch(self.state, call, one)
        if call.verb == "get":
            return Response(body=one(read.find(self.state, call)))
        chosen, version, more = read.page(self.state, call)
        meta: Obj = {"resourceVersion": str(version)}
        if more is not None:
            meta |= {"continue": more.token, "remainingItemCount": more.remaining or 0}
        return Response(body=render(chosen, meta))

    def _metadata(self, call: Call) -> Response:
        if call.verb == "watch":
            return watch.watch(self.state, call, _partial)
        if call.verb == "get":
            return Response(body=_partial(read.find(self.state, call)))
        chosen, version = read.select(self.state, call)
        return answer({
            "kind": "PartialObjectMetadataList",
            "apiVersion": representation.META,
            "metadata": {"resourceVersion": str(version)},
            "items": [representation.partial(e.decode()) for e in chosen],
        })

    def _other(self, request: Request, user: User) -> Response:
        """Paths that are not resources: discovery, documents, health."""
        verb = request.method.lower().replace("head", "get")
        attempt = Attempt(verb=verb, path=request.path)
        if self.state.authorizer.allows(user, attempt) is None:
            told = f"forbidden: {attempt.refusal(user)}"
            raise Problem(403, "Forbidden", told, {})
        parts = [part for part in request.path.split("/") if part]
        found = _health(parts) or _openapi_v2(request, parts) or self._document(request, parts)
        if found is None:
            return Response(status=404, body=b"404 page not found\n", content_type=TEXT)
        return found

    def _document(self, request: Request, parts: list[str]) -> Response | None:
        catalog, accept = self.state.catalog, request.headers.get("accept", "")
        match parts:
            case ["api" | "apis" as root] if discovery.wants_aggregated(accept):
                listed = discovery.aggregated(catalog, core=root == "api")
                return replace(answer(listed), content_type=discovery.AGGREGATED)
            case ["api"]:
                return answer(discovery.versions(request.headers.get("host", "")))
            case ["apis"]:
                return answer(discovery.groups(catalog))
            case ["version"]:
                return answer(discovery.version())
            case []:
                return answer(discovery.paths(catalog))
            case _:
                return _maybe(self._group_document(parts))

    def _group_document(self, parts: list[str]) -> Obj | None:
        catalog = self.state.catalog
        match parts:
            case ["api", version]:
                return discovery.resources(catalog, "", version)
            case ["apis", group]:
                return discovery.group(catalog, group)
            case ["apis", group, version]:
                return discovery.resources(catalog, group, version)
            case ["openapi", "v3"]:
                return discovery.index(catalog)
            case ["openapi", "v3", *path]:
                return discovery.document(catalog, "/".join(path))
            case _:
                return None


def _selected_name(call: Call) -> str:
    """Returns the one name that a list or watch selects; it is authorized like that name."""
    if call.verb not in {"list", "watch"}:
        return ""
    return selected_name(call.query.get("fieldSelector", ""))


def _partial(entry: Entry) -> bytes:
    return encode(representation.partial(entry.decode()))


def _openapi_v2(request: Request, parts: list[str]) -> Response | None:
    if parts != ["openapi", "v2"]:
        return None
    if discovery.wants_protobuf_v2(request.headers.get("accept", "")):
        return Response(body=discovery.document_v2_protobuf(), content_type=discovery.PROTOBUF_V2)
    return answer(discovery.document_v2())


def _maybe(value: Obj | None) -> Response | None:
    return None if value is None else answer(value)


def _health(parts: list[str]) -> Response | None:
    if parts and parts[0] in HEALTH:
        return Response(body=b"ok", content_type=TEXT)
    return None


def _logs(state: State, call: Call) -> Response:
    read.get(state, call)
    raise errors.bad_request(
        f"pod {call.name} has no logs: this API server is embedded in Pileus and runs no containers"
    )


def refusal(refused: Problem) -> Response:
    """Returns the error response."""
    log.info("Refused", v=4, status=refused.code, reason=refused.message)
    return replace(answer(refused.status(), refused.code), headers=refused.headers)
