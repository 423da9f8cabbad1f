"""Answers to token and access reviews, and tokens on request."""

from datetime import timedelta

from pileus_lab.apiserver import errors, field_errors
from pileus_lab.apiserver.access import MASTERS, Attempt
from pileus_lab.apiserver.call import Call, Response
from pileus_lab.apiserver.identity import ISSUER, Claims, TokenRequest, User, service_account
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.schema import conversion
from pileus_lab.apiserver.state import State, stamp
from pileus_lab.apiserver.store import Key, encode
from pileus_lab.apiserver.tree import Obj, branch, grow, items, look, number, text, texts
from pileus_lab.apiserver.verbs import request_body

LEAST_SECONDS = 600
MOST_SECONDS = 1 << 32
USUAL_SECONDS = 3600


def user_of_token(state: State, token: str, audiences: list[str]) -> tuple[User, list[str]] | None:
    """Returns the user of a token and its audiences; None if the token is not valid."""
    known = state.tokens.find(token)
    if known is not None:
        return known, audiences
    claims = state.signer.read(token, state.clock.now())
    if claims is None or not _is_alive(state, claims):
        return None
    shared = [a for a in audiences if a in claims.audiences]
    if not shared:
        return None
    extra: Obj = {"authentication.kubernetes.io/credential-id": f"JTI={claims.token_id}"}
    for kind in ("pod", "node"):
        for part in ("name", "uid"):
            if value := text(claims.bound, kind, part):
                extra[f"authentication.kubernetes.io/{kind}-{part}"] = value
    return service_account(claims.namespace, claims.name, claims.uid, extra), shared


def _is_alive(state: State, claims: Claims) -> bool:
    """A token becomes invalid with its account and with the object that it is bound to."""
    wanted = [("serviceaccounts", claims.name, claims.uid)]
    for kind in ("pod", "secret", "node"):
        bound = branch(claims.bound, kind)
        wanted += [(f"{kind}s", text(bound, "name"), text(bound, "uid"))] if bound else []
    for plural, name, uid in wanted:
        where = "" if plural == "nodes" else claims.namespace
        entry = state.store.shelf(plural).entries.get(Key(where, name))
        if entry is None or text(entry.decode(), "metadata", "uid") != uid:
            return False
    return True


def review(state: State, call: Call) -> Response:
    value, warnings = request_body.decode(call, call.resource)
    answers = {
        "TokenReview": _token_review,
        "SelfSubjectReview": _self_review,
        "SubjectAccessReview": _access_review,
        "LocalSubjectAccessReview": _access_review,
        "SelfSubjectAccessReview": _self_access_review,
        "SelfSubjectRulesReview": _rules_review,
    }
    value["status"] = answers[call.resource.kind](state, call, value)
    return _shown(call.resource, value, warnings)


def _shown(resource: Resource, value: Obj, warnings: tuple[str, ...]) -> Response:
    whole = request_body.typeless(conversion.canonical(resource.schema, value))
    return Response(status=201, body=resource.head + encode(whole)[1:], warnings=warnings)


def _token_review(state: State, call: Call, value: Obj) -> Obj:
    token = text(value, "spec", "token")
    if not token:
        told = "token is required for TokenReview in authentication"
        raise errors.bad_request(told)
    asked = texts(value, "spec", "audiences")
    found = user_of_token(state, token, asked or [ISSUER])
    _ = call
    if found is None:
        return {"error": "invalid bearer token"}
    user, audiences = found
    return {"authenticated": True, "user": user.described(), "audiences": audiences}


def _self_review(state: State, call: Call, value: Obj) -> Obj:
    _ = state, value
    return {"userInfo": call.user.described()}


def attempt_of(spec: Obj) -> Attempt:
    """Returns the attempt that a review asks about."""
    url, about = branch(spec, "nonResourceAttributes"), branch(spec, "resourceAttributes")
    if url:
        return Attempt(verb=text(url, "verb"), path=text(url, "path"))
    return Attempt(
        verb=text(about, "verb"),
        group=text(about, "group"),
        resource=text(about, "resource"),
        subresource=text(about, "subresource"),
        namespace=text(about, "namespace"),
        name=text(about, "name"),
    )


def _judge(state: State, user: User, spec: Obj) -> Obj:
    reason = state.authorizer.allows(user, attempt_of(spec))
    if reason is None:
        return {"allowed": False}
    return {"allowed": True, "reason": reason}


def _check_one_question(call: Call, spec: Obj) -> list[field_errors.Fault]:
    about, url = look(spec, "resourceAttributes"), look(spec, "nonResourceAttributes")
    if about is not None and url is not None:
        path = "spec.nonResourceAttributes"
        detail = "cannot be specified in combination with resourceAttributes"
        return [field_errors.invalid(path, url, detail)]
    if about is None and url is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [field_errors.invalid("spec.resourceAttributes", None, detail)]
    _ = call
    return []


def _access_review(state: State, call: Call, value: Obj) -> Obj:
    spec = branch(value, "spec")
    faults = _check_one_question(call, spec)
    if not text(spec, "user") and not items(spec, "groups"):
        detail = "at least one of user or group must be specified"
        faults.append(field_errors.invalid("spec.user", "", detail))
    if faults:
        raise call.resource.unfit("", faults)
    groups = texts(spec, "groups") or texts(spec, "group")
    user = User(text(spec, "user"), tuple(groups), text(spec, "uid"))
    return _judge(state, user, spec)


def _self_access_review(state: State, call: Call, value: Obj) -> Obj:
    spec = branch(value, "spec")
    if faults := _check_one_question(call, spec):
        raise call.resource.unfit("", faults)
    return _judge(state, call.user, spec)


def _rules_review(state: State, call: Call, value: Obj) -> Obj:
    everything: Obj = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    urls: Obj = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    rules = [everything, urls] if MASTERS in call.user.groups else []
    namespace = text(value, "spec", "namespace") or "default"
    for _, granted in state.authorizer.grants(call.user, namespace):
        rules += granted
    return {
        "resourceRules": [r for r in rules if items(r, "resources")],
        "nonResourceRules": [r for r in rules if items(r, "nonResourceURLs")],
        "incomplete": False,
    }


def request_token(state: State, call: Call) -> Response:
    """Return `serviceaccounts/<name>/token`."""
    value, warnings = request_body.decode(call, TOKEN_REQUESTS)
    entry = state.shelf(call.resource).entries.get(call.key)
    if entry is None:
        raise errors.not_found(call.resource.subject, call.name)
    account, spec = entry.decode(), grow(value, "spec")
    spec["audiences"] = texts(spec, "audiences") or [ISSUER]
    seconds = number(spec, "expirationSeconds") or USUAL_SECONDS
    _check_seconds(call, seconds)
    now = state.clock.now()
    request = TokenRequest(
        audiences=texts(spec, "audiences"),
        lifetime=timedelta(seconds=seconds),
        bound=_bound(state, call, spec),
        token_id=state.new_uid(),
    )
    spec["expirationSeconds"] = seconds
    known = branch(account, "metadata")
    value["metadata"] = {
        "name": call.name,
        "namespace": call.namespace,
        "uid": known.get("uid"),
        "creationTimestamp": stamp(now),
    }
    value["status"] = {
        "token": state.signer.issue(account, request, now),
        "expirationTimestamp": stamp(now + request.lifetime),
    }
    return _shown(TOKEN_REQUESTS, value, warnings)


def _check_seconds(call: Call, seconds: int) -> None:
    path = "spec.expirationSeconds"
    if seconds < LEAST_SECONDS:
        fault = field_errors.invalid(
            path, seconds, "may not specify a duration less than 10 minutes"
        )
        raise TOKEN_REQUESTS.unfit(call.name, [fault])
    if seconds > MOST_SECONDS:
        fault = field_errors.invalid(
            path, seconds, "may not specify a duration larger than 2^32 seconds"
        )
        raise TOKEN_REQUESTS.unfit(call.name, [fault])


def _bound(state: State, call: Call, spec: Obj) -> Obj:
    reference = branch(spec, "boundObjectRef")
    if not reference:
        return {}
    kind, name = text(reference, "kind"), text(reference, "name")
    shelf = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
    if shelf is None:
        group, _, version = text(reference, "apiVersion").rpartition("/")
        told = f"cannot bind token to object of type {group}/{version}, Kind={kind}"
        raise errors.bad_request(told)
    where = "" if kind == "Node" else call.namespace
    entry = state.store.shelf(shelf).entries.get(Key(where, name))
    if entry is None:
        raise errors.not_found(errors.Subject("", shelf), name)
    known, given = text(entry.decode(), "metadata", "uid"), text(reference, "uid")
    if given and given != known:
        why = (
            f"the UID in the bound object reference ({given}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(errors.Subject("", kind), name, why)
    return {kind.lower(): {"name": name, "uid": known}}


TOKEN_REQUESTS = Resource(
    group="authentication.k8s.io",
    kind="TokenRequest",
    plural="tokenrequests",
    schema="authentication.TokenRequest",
    verbs=("create",),
)
