"""Service accounts, roles and bindings, generated from the rights of the enabled controllers.

Every controller has its own ClusterRole. By default all are bound to the manager's account; with
--use-service-account-credentials each is bound to the account of its controller. The names of the
bindings are the same in both cases: applying the other form moves the rights, and none stay behind.

The accounts of controllers are not among the objects: kube-controller-manager creates and uses
accounts of the same names, which an installation must neither own nor delete. The manager creates
missing ones when it starts.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from pileus.app.registry import AnyDescriptor
from pileus.app.rights import (
    LEADER_ELECTION,
    TOKENS,
    controller_rights,
    process_rights,
    uses_own_accounts,
)
from pileus.app.settings import ManagerSettings
from pileus.deployment.choice import Choice, Shape, labels_of
from pileus.deployment.commented import Commented, Object
from pileus.objects.rights import KUBE_SYSTEM, Right
from pileus.version import COMPONENT

GROUP = "rbac.authorization.k8s.io"
VERSION = f"{GROUP}/v1"
COMMENTS = {
    "": "The manager itself.",
    LEADER_ELECTION: "The manager's Lease.",
    TOKENS: "The accounts of the controllers.",
}


def active(choice: Choice) -> tuple[AnyDescriptor, ...]:
    """Returns the controllers that run with these settings."""
    config = choice.config
    enabled = choice.controllers.enabled(config[ManagerSettings].controllers)
    return tuple(each for each in enabled if each.rights(config[each.settings]))


def access_objects(choice: Choice) -> Iterator[Object]:
    """Yields the accounts, roles and bindings."""
    controllers = active(choice)
    labels = rights_labels(choice.name)
    manager = account(choice.name, choice.namespace, labels)
    yield manager
    if choice.shape is Shape.EXTERNAL:
        yield token(choice)
    own = uses_own_accounts(choice.config)
    for suffix, rights in _of_the_process(choice, controllers):
        name = f"{choice.name}:{suffix}" if suffix else choice.name
        yield from roles(name, rights, manager, COMMENTS[suffix])
    for each in controllers:
        subject = account(each.names.identity, KUBE_SYSTEM, labels) if own else manager
        name = f"{choice.name}:{each.names.canonical}"
        yield from roles(
            name, controller_rights(each, choice.config), subject, f"{each.names.canonical}."
        )


def _of_the_process(
    choice: Choice, controllers: Iterable[AnyDescriptor]
) -> Iterable[tuple[str, tuple[Right, ...]]]:
    return process_rights(choice.config, controllers, choice.migration_lease).items()


def rights_labels(name: str) -> dict[str, str]:
    """Returns the labels of accounts, roles and bindings. `kubectl apply --selector` uses them."""
    return labels_of(name) | {COMPONENT: "rights"}


def account(name: str, namespace: str, labels: Mapping[str, str]) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def token(choice: Choice) -> Object:
    return Commented(
        "The token of a manager outside of the cluster. The API server fills it in.",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                **choice.metadata(f"{choice.name}-token"),
                "annotations": {"kubernetes.io/service-account.name": choice.name},
            },
        },
    )


def roles(name: str, rights: Iterable[Right], subject: Object, comment: str) -> Iterator[Object]:
    """Yields a ClusterRole and a Role per namespace, as far as there are rights for them.

    They are bound to the account `subject`, and have its labels.
    """
    ordered = sorted(rights, key=lambda right: right.namespace)
    for namespace, group in groupby(ordered, key=lambda right: right.namespace):
        kind = "Role" if namespace else "ClusterRole"
        where = {"namespace": namespace} if namespace else {}
        rules = [Commented(right.purpose, right.rule()) for right in group]
        metadata = {"name": name, **where, "labels": dict(subject["metadata"]["labels"])}
        role = {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "rules": rules}
        yield Commented(comment, role)
        yield binding(metadata, kind, subject)


def binding(metadata: Object, kind: str, subject: Object) -> Object:
    bound = {key: subject["metadata"][key] for key in ("name", "namespace")}
    return {
        "apiVersion": VERSION,
        "kind": f"{kind}Binding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]},
        "subjects": [{"kind": subject["kind"], **bound}],
    }
