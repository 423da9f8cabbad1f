"""Who one is: impersonation, and tokens that are bound to nodes."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.api.http import Answer, Api, Namespace
from tests.contract.api.people import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    Account,
    Rule,
    bind,
    binding,
    rule,
    until,
)

SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.fixture
def robot(namespace: Namespace) -> Account:
    return Account(namespace)


@pytest.fixture
def cluster_rights(api: Api, robot: Account) -> Iterator[Callable[..., None]]:
    """Gives the robot rights in the whole cluster."""
    name = f"case-{uuid.uuid4().hex[:10]}"
    made = False

    def give(*rules: Rule) -> None:
        nonlocal made
        api.post(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": robot.name, "namespace": robot.space.name}
        answer = api.post(CLUSTER_BINDINGS, binding(name, name, subject, "ClusterRole"))
        assert answer.status == 201, answer
        made = True

    yield give
    if made:
        api.delete(f"{CLUSTER_BINDINGS}/{name}")
        api.delete(f"{CLUSTER_ROLES}/{name}")


AUTHENTICATION = "authentication.k8s.io"


def impersonated(robot: Account, **headers: str) -> Answer:
    return robot.api.acting(**headers).post(SELF, {})


def who(answer: Answer) -> dict[str, Any]:
    assert answer.status == 201, answer
    return answer.body["status"]["userInfo"]


class TestImpersonation:
    def test_the_administrator_can_be_anyone(self, api: Api) -> None:
        headers = {"impersonate_group": "ops", "impersonate_uid": "u-1"}
        one = api.acting(impersonate_user="jane", **headers, impersonate_extra_scope="view")

        user = who(one.post(SELF, {}))

        assert (user["username"], user["uid"]) == ("jane", "u-1")
        assert user["groups"] == ["ops", "system:authenticated"]
        assert user["extra"]["scope"] == ["view"]

    def test_a_service_account_comes_with_its_groups(self, api: Api, robot: Account) -> None:
        user = who(api.acting(impersonate_user=robot.user).post(SELF, {}))

        assert user["username"] == robot.user
        assert user["groups"] == [
            "system:serviceaccounts",
            f"system:serviceaccounts:{robot.space.name}",
            "system:authenticated",
        ]

    def test_nobody_may_impersonate_without_a_right(self, robot: Account) -> None:
        answer = impersonated(robot, impersonate_user="jane")

        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert f'is forbidden: User "{robot.user}" cannot impersonate' in answer.message

    def test_each_part_needs_its_right(
        self, robot: Account, cluster_rights: Callable[..., None]
    ) -> None:
        cluster_rights(
            rule("impersonate", "users", "jane"),
            rule("impersonate", "groups", "ops"),
            rule("impersonate", "uids", "u-1", group=AUTHENTICATION),
            rule("impersonate", "userextras/scope", "view", group=AUTHENTICATION),
        )
        until(lambda: impersonated(robot, impersonate_user="jane").status == 201)
        jane = {"impersonate_user": "jane"}

        def status(**headers: str) -> int:
            return impersonated(robot, **jane, **headers).status

        assert impersonated(robot, impersonate_user="eve").status == 403
        assert status(impersonate_group="ops") == 201
        assert status(impersonate_group="system:masters") == 403
        assert status(impersonate_uid="u-1") == 201
        assert status(impersonate_uid="u-2") == 403
        assert status(impersonate_extra_scope="view") == 201
        assert status(impersonate_extra_scope="edit") == 403
        assert status(impersonate_extra_other="view") == 403

    def test_a_service_account_needs_the_right_on_service_accounts(
        self, robot: Account, cluster_rights: Callable[..., None]
    ) -> None:
        cluster_rights(rule("impersonate", "users"))
        until(lambda: impersonated(robot, impersonate_user="jane").status == 201)

        answer = impersonated(robot, impersonate_user=robot.user)

        assert answer.status == 403
        assert answer.message == (
            f'serviceaccounts "{robot.name}" is forbidden: User "{robot.user}" cannot impersonate '
            f'resource "serviceaccounts" in API group "" in the namespace "{robot.space.name}"'
        )

    def test_the_right_on_service_accounts_is_by_namespace(self, robot: Account) -> None:
        subject = {"kind": "ServiceAccount", "name": robot.name, "namespace": robot.space.name}
        bind(robot.space, "act", (rule("impersonate", "serviceaccounts"),), subject)

        until(lambda: impersonated(robot, impersonate_user=robot.user).status == 201)
        other = "system:serviceaccount:kube-system:default"
        assert impersonated(robot, impersonate_user=other).status == 403

    @pytest.mark.parametrize(
        "headers",
        [
            {"impersonate_group": "ops"},
            {"impersonate_uid": "u-1"},
            {"impersonate_extra_scope": "view"},
        ],
    )
    def test_parts_without_a_user_are_refused(self, api: Api, headers: dict[str, str]) -> None:
        answer = api.acting(**headers).post(SELF, {})

        assert (answer.status, answer.reason) == (400, "BadRequest")
        assert answer.message.endswith("without impersonating a user name")


class TestNodeBoundTokens:
    @pytest.fixture
    def node(self, api: Api, fresh: str) -> Iterator[dict[str, Any]]:
        made = api.post("/api/v1/nodes", {"metadata": {"name": fresh}})
        assert made.status == 201, made
        yield made.body["metadata"]
        api.delete(f"/api/v1/nodes/{fresh}")

    def bound(self, node: dict[str, Any], **fields: str) -> dict[str, Any]:
        return {"kind": "Node", "apiVersion": "v1", "name": node["name"], **fields}

    def review(self, api: Api, token: str) -> dict[str, Any]:
        return api.post(REVIEWS, {"spec": {"token": token}}).body["status"]

    def test_the_token_names_its_node(self, api: Api, robot: Account, node: dict[str, Any]) -> None:
        token = robot.token(boundObjectRef=self.bound(node))

        extra = self.review(api, token)["user"]["extra"]

        assert extra["authentication.kubernetes.io/node-name"] == [node["name"]]
        assert extra["authentication.kubernetes.io/node-uid"] == [node["uid"]]

    def test_it_dies_with_the_node(self, api: Api, robot: Account, node: dict[str, Any]) -> None:
        # The real server remembers for seconds that a token was good: each is shown once.
        used, *others = (robot.token(boundObjectRef=self.bound(node)) for _ in range(40))
        assert self.review(api, used)["authenticated"]

        api.delete(f"/api/v1/nodes/{node['name']}")

        spare = iter(others)
        until(lambda: not self.review(api, next(spare)).get("authenticated"))

    def test_a_node_made_again_is_another(
        self, api: Api, robot: Account, node: dict[str, Any]
    ) -> None:
        tokens = iter([robot.token(boundObjectRef=self.bound(node)) for _ in range(40)])

        api.delete(f"/api/v1/nodes/{node['name']}")
        assert api.post("/api/v1/nodes", {"metadata": {"name": node["name"]}}).status == 201

        until(lambda: not self.review(api, next(tokens)).get("authenticated"))

    @pytest.mark.parametrize(
        ("fields", "status"),
        [({"name": "no-such-node"}, 404), ({"uid": "another"}, 409), ({"kind": "Service"}, 400)],
    )
    def test_a_wrong_reference_is_refused(
        self, robot: Account, node: dict[str, Any], fields: dict[str, str], status: int
    ) -> None:
        path = robot.space.path("serviceaccounts", f"{robot.name}/token")
        spec = {"boundObjectRef": self.bound(node) | fields}

        answer = robot.space.api.post(path, {"spec": spec})

        assert answer.status == status, answer
