"""Roles and their bindings."""

from collections.abc import Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import AGE, NAME, Column, Resource, Rules
from pileus_lab.apiserver.tree import Obj, branch, default, grow, items, look, rows, text, texts

GROUP = "rbac.authorization.k8s.io"


def _validate_rules(value: Obj) -> Iterator[Fault]:
    for index, rule in enumerate(rows(value, "rules")):
        path = f"rules[{index}]"
        if not texts(rule, "verbs"):
            yield field_errors.required(f"{path}.verbs", "verbs must contain at least one value")
        if texts(rule, "nonResourceURLs"):
            if text(value, "metadata", "namespace"):
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield field_errors.invalid(
                    f"{path}.nonResourceURLs", texts(rule, "nonResourceURLs"), detail
                )
            continue
        if not items(rule, "apiGroups"):
            detail = "resource rules must supply at least one api group"
            yield field_errors.required(f"{path}.apiGroups", detail)
        if not items(rule, "resources"):
            detail = "resource rules must supply at least one resource"
            yield field_errors.required(f"{path}.resources", detail)


def _default_binding(value: Obj) -> None:
    if not text(value, "roleRef", "apiGroup"):
        grow(value, "roleRef")["apiGroup"] = GROUP
    for subject in rows(value, "subjects"):
        if text(subject, "kind") in {"User", "Group"} and not text(subject, "apiGroup"):
            default(subject, apiGroup=GROUP)


def _validate_binding(value: Obj) -> Iterator[Fault]:
    reference = branch(value, "roleRef")
    kinds = ("Role", "ClusterRole") if text(value, "metadata", "namespace") else ("ClusterRole",)
    if text(reference, "apiGroup") != GROUP:
        yield field_errors.unsupported("roleRef.apiGroup", text(reference, "apiGroup"), (GROUP,))
    if text(reference, "kind") not in kinds:
        yield field_errors.unsupported("roleRef.kind", text(reference, "kind"), kinds)
    if not text(reference, "name"):
        yield field_errors.required("roleRef.name")
    for index, subject in enumerate(rows(value, "subjects")):
        yield from _subject_faults(subject, f"subjects[{index}]")


def _subject_faults(subject: Obj, path: str) -> Iterator[Fault]:
    if not text(subject, "name"):
        yield field_errors.required(f"{path}.name")
    match text(subject, "kind"):
        case "ServiceAccount":
            if not text(subject, "namespace"):
                yield field_errors.required(f"{path}.namespace")
        case "User" | "Group":
            pass
        case kind:
            yield field_errors.unsupported(
                f"{path}.kind", kind, ("ServiceAccount", "User", "Group")
            )


def _keep_reference(new: Obj, old: Obj) -> Iterator[Fault]:
    if look(new, "roleRef") != look(old, "roleRef"):
        yield field_errors.invalid("roleRef", look(new, "roleRef"), "cannot change roleRef")


def _subjects(value: Obj, kind: str) -> str:
    found = [s for s in rows(value, "subjects") if text(s, "kind") == kind]
    if kind == "ServiceAccount":
        return ", ".join(f"{text(s, 'namespace')}/{text(s, 'name')}" for s in found)
    return ", ".join(text(s, "name") for s in found)


_ROLE_RULES = Rules(validate=_validate_rules, name_faults=naming.path_segment_faults)
_BINDING_RULES = Rules(
    default=_default_binding,
    validate=_validate_binding,
    validate_update=_keep_reference,
    name_faults=naming.path_segment_faults,
)
_ROLE_COLUMNS = (NAME, Column("Created At", lambda o: text(o, "metadata", "creationTimestamp")))
_BINDING_COLUMNS = (
    NAME,
    Column("Role", lambda o: f"{text(o, 'roleRef', 'kind')}/{text(o, 'roleRef', 'name')}"),
    AGE,
    Column("Users", lambda o: _subjects(o, "User"), wide=True),
    Column("Groups", lambda o: _subjects(o, "Group"), wide=True),
    Column("ServiceAccounts", lambda o: _subjects(o, "ServiceAccount"), wide=True),
)

ROLES = Resource(
    group=GROUP,
    kind="Role",
    plural="roles",
    schema="rbac.Role",
    creates_on_update=True,
    rules=_ROLE_RULES,
    columns=_ROLE_COLUMNS,
)
CLUSTER_ROLES = Resource(
    group=GROUP,
    kind="ClusterRole",
    plural="clusterroles",
    schema="rbac.ClusterRole",
    namespaced=False,
    creates_on_update=True,
    rules=_ROLE_RULES,
    columns=_ROLE_COLUMNS,
)
ROLE_BINDINGS = Resource(
    group=GROUP,
    kind="RoleBinding",
    plural="rolebindings",
    schema="rbac.RoleBinding",
    creates_on_update=True,
    rules=_BINDING_RULES,
    columns=_BINDING_COLUMNS,
)
CLUSTER_ROLE_BINDINGS = Resource(
    group=GROUP,
    kind="ClusterRoleBinding",
    plural="clusterrolebindings",
    schema="rbac.ClusterRoleBinding",
    namespaced=False,
    creates_on_update=True,
    rules=_BINDING_RULES,
    columns=_BINDING_COLUMNS,
)
