"""Rights on a real API server: what `pileus manifests` prints, as a whole or without a verb."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pileus.app.registry import CONTROLLERS, Controllers
from pileus.app.settings import TABLE, build_config
from pileus.deployment.choice import Choice
from pileus.deployment.commented import documents
from pileus.deployment.rbac import access_objects
from pileus.settings.sources import gather
from pileus.testing.control_plane import ControlPlane
from pileus.version import INSTALLED, PROGRAM
from tests.contract.api.http import Api

ACCOUNT = f"system:serviceaccount:kube-system:{INSTALLED}"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
OWN = "--use-service-account-credentials"
EVERYTHING = (
    "--controllers=*,node-ipam-controller",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--ssh-keys-from=configmap:kube-system/ssh-keys",
)
"""Flags with which every controller runs."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def rbac(*flags: str, controllers: Controllers = CONTROLLERS) -> list[dict[str, Any]]:
    """The accounts, roles and bindings for a manager with these flags."""
    line = ("--cloud-provider=any", *flags)
    config = build_config(gather(TABLE, PROGRAM, line, {}).values)
    return list(access_objects(Choice(config=config, controllers=controllers)))


@contextmanager
def granted(
    cluster: ControlPlane, *flags: str, controllers: Controllers = CONTROLLERS
) -> Generator[list[dict[str, Any]]]:
    """Apply the rights, and delete them at the end."""
    objects = rbac(*flags, controllers=controllers)
    text = documents(objects)
    cluster.kubectl("apply", "--filename=-", stdin=text)
    try:
        yield objects
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)


@dataclass(frozen=True)
class Verb:
    """One verb of one rule of a role, and the account that is bound to the role."""

    role: dict[str, Any]
    number: int
    verb: str
    account: str

    @property
    def path(self) -> str:
        name, namespace = self.role["metadata"]["name"], self.role["metadata"].get("namespace")
        where = f"/namespaces/{namespace}/roles" if namespace else "/clusterroles"
        return f"{RBAC}{where}/{name}"

    @property
    def rule(self) -> dict[str, Any]:
        return self.role["rules"][self.number]

    def without(self) -> dict[str, Any]:
        """The role without this verb."""
        role = json.loads(json.dumps(self.role))
        role["rules"][self.number]["verbs"].remove(self.verb)
        if not role["rules"][self.number]["verbs"]:
            del role["rules"][self.number]
        return role

    def review(self) -> dict[str, Any]:
        """The question whether the account may do what the verb is for."""
        rule, what = self.rule, {}
        if "nonResourceURLs" in rule:
            what["nonResourceAttributes"] = {"path": rule["nonResourceURLs"][0], "verb": self.verb}
        else:
            resource, _, subresource = rule["resources"][0].partition("/")
            what["resourceAttributes"] = {
                "group": rule["apiGroups"][0],
                "resource": resource,
                "subresource": subresource,
                "verb": self.verb,
                "name": rule.get("resourceNames", [""])[0],
                "namespace": self.role["metadata"].get("namespace", ""),
            }
        return {"spec": {"user": self.account, **what}}

    def __str__(self) -> str:
        what = self.rule.get("resources") or self.rule["nonResourceURLs"]
        return f"{self.role['metadata']['name']}: {self.verb} {what[0]}"


def verbs(objects: list[dict[str, Any]]) -> Iterator[Verb]:
    """Each verb of each rule."""
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"]): each["subjects"][0]
        for each in objects
        if "roleRef" in each
    }
    for role in (each for each in objects if "rules" in each):
        subject = bound[role["kind"], role["metadata"]["name"]]
        account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        for number, rule in enumerate(role["rules"]):
            for verb in rule["verbs"]:
                yield Verb(deepcopy(role), number, verb, account)


def may(api: Api, verb: Verb) -> bool:
    answer = api.post(REVIEWS, verb.review())
    assert answer.status == 201, answer
    return answer.body["status"]["allowed"]
