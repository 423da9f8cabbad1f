"""RBAC: which user may do what, evaluated from the stored roles and bindings."""

from collections.abc import Iterator
from dataclasses import dataclass

from pileus_lab.apiserver.identity import ACCOUNT_PREFIX, User
from pileus_lab.apiserver.store import Store
from pileus_lab.apiserver.tree import Obj, namespace_of, rows, text, texts

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_SHELVES = tuple(
    f"{plural}.{GROUP}"
    for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A request to authorize: on a resource, or (if `path` is set) on another URL."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def target(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def refusal(self, user: User) -> str:
        """Returns the message with which the real server refuses it."""
        if self.path:
            return f'User "{user.name}" cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return (
            f'User "{user.name}" cannot {self.verb} resource "{self.target}" in API group '
            f'"{self.group}" {where}'
        )


class Authorizer:
    """Answers from the store; roles are read again only after one has changed."""

    def __init__(self, store: Store) -> None:
        self._shelves = [store.shelf(name) for name in _SHELVES]
        self._seen: list[int] = []
        self._roles: dict[tuple[str, str, str], list[Obj]] = {}
        self._bindings: list[Obj] = []

    def trusts(self, user: User) -> bool:
        """Whether the user may do anything, so that no role has to be searched."""
        return MASTERS in user.groups

    def allows(self, user: User, attempt: Attempt) -> str | None:
        """Returns why it is allowed; None if it is not."""
        if self.trusts(user):
            return ""
        for binding, rules in self.grants(user, attempt.namespace):
            if any(covers(rule, attempt) for rule in rules):
                return _because(binding, user)
        return None

    def grants(self, user: User, namespace: str) -> Iterator[tuple[Obj, list[Obj]]]:
        """Yields the bindings that apply to the user there, each with the rules of its role."""
        self._refresh()
        for binding in self._bindings:
            where = namespace_of(binding)
            if where not in {"", namespace} or not _binds(binding, user):
                continue
            kind, name = text(binding, "roleRef", "kind"), text(binding, "roleRef", "name")
            yield binding, self._roles.get((kind, where if kind == "Role" else "", name), [])

    def rules_of(self, kind: str, namespace: str, name: str) -> list[Obj] | None:
        """Returns the rules of a role; None if it does not exist."""
        self._refresh()
        return self._roles.get((kind, namespace, name))

    def _refresh(self) -> None:
        seen = [shelf.touched for shelf in self._shelves]
        if seen == self._seen and self._bindings:
            return
        self._seen = seen
        roles, cluster_roles, bindings, cluster_bindings = self._shelves
        self._roles = {
            (kind, key.namespace, key.name): rows(entry.decode(), "rules")
            for kind, shelf in (("Role", roles), ("ClusterRole", cluster_roles))
            for key, entry in shelf.entries.items()
        }
        found = (*cluster_bindings.entries.values(), *bindings.entries.values())
        self._bindings = [entry.decode() for entry in found]


def _binds(binding: Obj, user: User) -> bool:
    return any(_is_user(subject, user) for subject in rows(binding, "subjects"))


def _is_user(subject: Obj, user: User) -> bool:
    name = text(subject, "name")
    match text(subject, "kind"):
        case "User":
            return name == user.name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return user.name == f"{ACCOUNT_PREFIX}{text(subject, 'namespace')}:{name}"
        case _:
            return False


def covers(rule: Obj, attempt: Attempt) -> bool:
    """Whether the rule allows it. An attempt without a name needs a rule for all names."""
    if not _has(texts(rule, "verbs"), attempt.verb):
        return False
    if attempt.path:
        return any(_path_matches(p, attempt.path) for p in texts(rule, "nonResourceURLs"))
    names = texts(rule, "resourceNames")
    return (
        _has(texts(rule, "apiGroups"), attempt.group)
        and _covers_resource(texts(rule, "resources"), attempt)
        and (not names or attempt.name in names)
    )


def _covers_resource(resources: list[str], attempt: Attempt) -> bool:
    anywhere = f"*/{attempt.subresource}" if attempt.subresource else "*"
    return _has(resources, attempt.target) or anywhere in resources


def _has(values: list[str], wanted: str) -> bool:
    return "*" in values or wanted in values


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return pattern == path


def _because(binding: Obj, user: User) -> str:
    meta_name, where = text(binding, "metadata", "name"), namespace_of(binding)
    kind = "RoleBinding" if where else "ClusterRoleBinding"
    named = f"{meta_name}/{where}" if where else meta_name
    role = f'{text(binding, "roleRef", "kind")} "{text(binding, "roleRef", "name")}"'
    subject = next(s for s in rows(binding, "subjects") if _is_user(s, user))
    whom = text(subject, "name")
    if text(subject, "namespace"):
        whom = f"{whom}/{text(subject, 'namespace')}"
    return f'RBAC: allowed by {kind} "{named}" of {role} to {text(subject, "kind")} "{whom}"'
