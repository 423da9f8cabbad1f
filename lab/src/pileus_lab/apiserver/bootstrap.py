"""What a new server starts with: namespaces, roles, and the ConfigMap with the client CA."""

from pileus_lab.apiserver.call import Call, Request
from pileus_lab.apiserver.identity import User
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources import core, rbac, service
from pileus_lab.apiserver.schema import conversion
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.store import Key
from pileus_lab.apiserver.tree import Obj, name_of, namespace_of
from pileus_lab.apiserver.verbs import admission
from pileus_lab.apiserver.verbs.request_body import typeless

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
AUTHENTICATION_MAP = "extension-apiserver-authentication"
_READ = ["get", "list", "watch"]
_EVENTS: Obj = {
    "apiGroups": ["", "events.k8s.io"],
    "resources": ["events"],
    "verbs": ["create", "patch", "update"],
}
_HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DOCS = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]


def _rule(resources: str, verbs: list[str], group: str = "", names: tuple[str, ...] = ()) -> Obj:
    rule: Obj = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs}
    return rule | ({"resourceNames": list(names)} if names else {})


ROLES: dict[str, list[Obj]] = {
    "cluster-admin": [
        _rule("*", ["*"], "*"),
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "system:discovery": [{"nonResourceURLs": sorted(_DOCS + _HEALTH), "verbs": ["get"]}],
    "system:public-info-viewer": [{"nonResourceURLs": _HEALTH, "verbs": ["get"]}],
    "system:basic-user": [
        _rule(
            "selfsubjectaccessreviews selfsubjectrulesreviews", ["create"], "authorization.k8s.io"
        ),
        _rule("selfsubjectreviews", ["create"], "authentication.k8s.io"),
    ],
    "system:auth-delegator": [
        _rule("tokenreviews", ["create"], "authentication.k8s.io"),
        _rule("subjectaccessreviews", ["create"], "authorization.k8s.io"),
    ],
    "system:controller:node-controller": [
        _rule("nodes", ["delete", "get", "list", "patch", "update", "watch"]),
        _rule("nodes/status", ["patch", "update"]),
        _rule("pods/status", ["patch", "update"]),
        _rule("pods", ["delete", "get", "list", "watch"]),
        _rule("leases", _READ, "coordination.k8s.io"),
        _EVENTS,
    ],
    "system:controller:service-controller": [
        _rule("services", _READ),
        _rule("services/status", ["patch", "update"]),
        _rule("nodes", ["list", "watch"]),
        _EVENTS,
    ],
    "system:controller:route-controller": [
        _rule("nodes", ["list", "watch"]),
        _rule("nodes/status", ["patch"]),
        _EVENTS,
    ],
    "view": [
        _rule("configmaps events pods pods/log pods/status serviceaccounts services", _READ),
        _rule("namespaces namespaces/status services/status", _READ),
        _rule("endpointslices", _READ, "discovery.k8s.io"),
    ],
}
GROUPS: dict[str, tuple[str, ...]] = {
    "cluster-admin": ("system:masters",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:basic-user": ("system:authenticated",),
}
CONTROLLERS = ("node-controller", "service-controller", "route-controller")
_MARKS: Obj = {
    "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
}


def bootstrap(state: State) -> None:
    """Creates what is missing; existing objects are not changed."""
    for name in NAMESPACES:
        _ensure(state, core.NAMESPACES, {"metadata": {"name": name}})
    for name, rules in ROLES.items():
        _ensure(state, rbac.CLUSTER_ROLES, {"metadata": {"name": name, **_MARKS}, "rules": rules})
    for name, groups in GROUPS.items():
        _bind(state, name, [{"kind": "Group", "name": group} for group in groups])
    for name in CONTROLLERS:
        account = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
        _bind(state, f"system:controller:{name}", [account])
    _authentication(state)
    _kubernetes_service(state)


def _bind(state: State, role: str, subjects: list[dict[str, str]]) -> None:
    binding: Obj = {
        "metadata": {"name": role, **_MARKS},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }
    _ensure(state, rbac.CLUSTER_ROLE_BINDINGS, binding)


def _authentication(state: State) -> None:
    """Servers that delegate authentication read from here which certificates to trust."""
    reader = "extension-apiserver-authentication-reader"
    rules = [_rule("configmaps", _READ, names=(AUTHENTICATION_MAP,))]
    where = {"namespace": "kube-system", **_MARKS}
    _ensure(state, rbac.ROLES, {"metadata": {"name": reader, **where}, "rules": rules})
    users = ("system:kube-controller-manager", "system:kube-scheduler")
    binding: Obj = {
        "metadata": {"name": f"system::{reader}", **where},
        "roleRef": {"kind": "Role", "name": reader},
        "subjects": [{"kind": "User", "name": user} for user in users],
    }
    _ensure(state, rbac.ROLE_BINDINGS, binding)
    if state.options.client_authority:
        authority: Obj = {
            "metadata": {"name": AUTHENTICATION_MAP, "namespace": "kube-system"},
            "data": {"client-ca-file": state.options.client_authority},
        }
        _ensure(state, core.CONFIG_MAPS, authority, replace=True)


def _kubernetes_service(state: State) -> None:
    network = state.options.ranges.networks[0]
    _ensure(
        state,
        service.SERVICES,
        {
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "clusterIP": str(network[1]),
                "ports": [{"name": "https", "port": 443, "targetPort": 6443}],
            },
        },
    )


def _ensure(state: State, resource: Resource, value: Obj, *, replace: bool = False) -> None:
    shelf, key = state.shelf(resource), Key(namespace_of(value), name_of(value))
    known = shelf.entries.get(key)
    if known is not None and not (replace and known.decode().get("data") != value.get("data")):
        return
    made = typeless(conversion.canonical(resource.schema, value))
    request = Request(method="POST", path="")
    call = Call(
        verb="create",
        resource=resource,
        namespace=key.namespace,
        request=request,
        user=User("system:apiserver", ("system:masters",)),
    )
    admission.new_object(state, call, made)
    state.store.write(shelf, key, made)
