"""The escalation check: a user cannot create roles or bindings with rights that the user lacks."""

from collections.abc import Iterator
from itertools import product

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.access import GROUP, Attempt, covers
from pileus_lab.apiserver.call import Call
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.tree import Obj, clone, grow, name_of, rows, text, texts

_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_NOT_GRANTS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


def check(state: State, call: Call, new: Obj, old: Obj | None) -> None:
    """Refuses a role or binding that grants more than the user has.

    `escalate` on roles and `bind` on the bound role lift the limit. A change of finalizers and
    owners alone grants nothing. Raises `Problem` 403, or 404 if the bound role does not exist.
    """
    if call.resource.group != GROUP or state.authorizer.trusts(call.user):
        return
    if old is not None and _as_grant(new) == _as_grant(old):
        return
    rules = _granted(state, call, new)
    if rules is None:
        return
    if missing := _missing(state, call, rules):
        shown = "\n".join(sorted(missing))
        groups = " ".join(f'"{group}"' for group in call.user.groups)
        why = (
            f'user "{call.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions '
            f"not currently held:\n{shown}"
        )
        raise errors.forbidden(call.resource.subject, name_of(new), why)


def _as_grant(value: Obj) -> Obj:
    bare = clone(value)
    for name in _NOT_GRANTS:
        grow(bare, "metadata").pop(name, None)
    return bare


def _granted(state: State, call: Call, value: Obj) -> list[Obj] | None:
    """Returns the rules that the object grants; None if the user may grant anything."""
    if call.resource.kind in _ROLES:
        free = _may(state, call, "escalate", call.resource.plural, call.name)
        return None if free else rows(value, "rules")
    kind, name = text(value, "roleRef", "kind"), text(value, "roleRef", "name")
    plural = _ROLES.get(kind, "")
    if _may(state, call, "bind", plural, name):
        return None
    namespace = call.namespace if kind == "Role" else ""
    rules = state.authorizer.rules_of(kind, namespace, name)
    if rules is None:
        raise errors.not_found(errors.Subject(GROUP, plural), name)
    return rules


def _may(state: State, call: Call, verb: str, plural: str, name: str) -> bool:
    attempt = Attempt(verb=verb, group=GROUP, resource=plural, namespace=call.namespace, name=name)
    return state.authorizer.allows(call.user, attempt) is not None


def _missing(state: State, call: Call, rules: list[Obj]) -> list[str]:
    """Returns the rules that the user lacks, in the format of the real server."""
    held = [
        rule
        for _, granted in state.authorizer.grants(call.user, call.namespace)
        for rule in granted
    ]
    verbs: dict[tuple[str, str, str], list[str]] = {}
    urls: list[str] = []
    for attempt in (attempt for rule in rules for attempt in _parts(rule)):
        if any(covers(rule, attempt) for rule in held):
            continue
        if attempt.path:
            urls.append(f'{{NonResourceURLs:["{attempt.path}"], Verbs:["{attempt.verb}"]}}')
            continue
        known = verbs.setdefault((attempt.group, attempt.target, attempt.name), [])
        if attempt.verb not in known:
            known.append(attempt.verb)
    return [*urls, *(_shown(*what, missing) for what, missing in verbs.items())]


def _parts(rule: Obj) -> Iterator[Attempt]:
    for verb, path in product(texts(rule, "verbs"), texts(rule, "nonResourceURLs")):
        yield Attempt(verb=verb, path=path)
    names = texts(rule, "resourceNames") or [""]
    which = product(texts(rule, "apiGroups"), texts(rule, "resources"), texts(rule, "verbs"), names)
    for group, target, verb, name in which:
        resource, _, subresource = target.partition("/")
        yield Attempt(verb=verb, group=group, resource=resource, subresource=subresource, name=name)


def _shown(group: str, target: str, name: str, verbs: list[str]) -> str:
    named = f', ResourceNames:["{name}"]' if name else ""
    quoted = " ".join(f'"{verb}"' for verb in verbs)
    return f'{{APIGroups:["{group}"], Resources:["{target}"]{named}, Verbs:[{quoted}]}}'
