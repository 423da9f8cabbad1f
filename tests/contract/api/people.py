"""Users and service accounts without rights, but for those that a case gives them."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.contract.api.http import Answer, Namespace

RBAC = "rbac.authorization.k8s.io"
RBAC_V1 = f"{RBAC}/v1"
CLUSTER_ROLES = f"/apis/{RBAC_V1}/clusterroles"
CLUSTER_BINDINGS = f"/apis/{RBAC_V1}/clusterrolebindings"
LIMIT = 30.0
Rule = dict[str, list[str]]


def rule(verbs: str, resources: str, *names: str, group: str = "") -> Rule:
    made = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return made | ({"resourceNames": list(names)} if names else {})


def until(holds: Callable[[], bool]) -> None:
    """Wait until the server's caches have what was written."""
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Person:
    """A user without rights, but for those that a test gives."""

    def __init__(self, space: Namespace) -> None:
        self.space = space
        self.name = f"jane-{uuid.uuid4().hex[:6]}"
        self.api = space.api.acting(impersonate_user=self.name)
        self._count = 0

    def may(self, *rules: Rule) -> None:
        """Give these rights in the namespace, and wait until they hold."""
        self._count += 1
        name = f"{self.name}-{self._count}"
        bind(self.space, name, rules, {"kind": "User", "name": self.name, "apiGroup": RBAC})
        until(lambda: all(self._has(each) for each in rules))

    def _has(self, each: Rule) -> bool:
        resource, _, subresource = each["resources"][0].partition("/")
        about = {
            "namespace": self.space.name,
            "verb": each["verbs"][0],
            "group": each["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "name": each.get("resourceNames", [""])[0],
        }
        asked = {"spec": {"user": self.name, "resourceAttributes": about}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return self.space.api.post(path, asked).body["status"]["allowed"]

    def create_role(self, name: str, *rules: Rule) -> Answer:
        body = {"metadata": {"name": name}, "rules": list(rules)}
        return self.api.post(self.space.path("roles", group=RBAC_V1), body)

    def create_binding(self, name: str, role: str, kind: str = "Role") -> Answer:
        body = binding(name, role, {"kind": "User", "name": "bob", "apiGroup": RBAC}, kind)
        return self.api.post(self.space.path("rolebindings", group=RBAC_V1), body)


def binding(name: str, role: str, subject: dict[str, str], kind: str = "Role") -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


def bind(space: Namespace, name: str, rules: tuple[Rule, ...], subject: dict[str, str]) -> None:
    role = {"metadata": {"name": name}, "rules": list(rules)}
    made = space.api.post(space.path("roles", group=RBAC_V1), role)
    assert made.status == 201, made
    made = space.api.post(space.path("rolebindings", group=RBAC_V1), binding(name, name, subject))
    assert made.status == 201, made


class Account:
    """A service account with a token of its own."""

    def __init__(self, space: Namespace, name: str = "robot") -> None:
        self.space, self.name = space, name
        made = space.api.post(space.path("serviceaccounts"), {"metadata": {"name": name}})
        assert made.status == 201, made
        self.user = f"system:serviceaccount:{space.name}:{name}"
        self.uid = made.body["metadata"]["uid"]
        self.api = space.api.bearing(self.token())

    def token(self, **spec: Any) -> str:
        path = self.space.path("serviceaccounts", f"{self.name}/token")
        made = self.space.api.post(path, {"spec": spec})
        assert made.status == 201, made
        return made.body["status"]["token"]
