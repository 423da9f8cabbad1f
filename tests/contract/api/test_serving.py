"""Who one is, what one may, and what the server says of itself."""

import pytest

from tests.contract.api.http import Api, Namespace


class TestIdentity:
    def test_an_account_s_token_is_reviewed_as_its_own(self, namespace: Namespace) -> None:
        account = namespace.path("serviceaccounts", "robot")
        namespace.api.post(namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}})
        asked = {"spec": {"expirationSeconds": 3600}}

        issued = namespace.api.post(f"{account}/token", asked)
        review = namespace.api.post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"spec": {"token": issued.body["status"]["token"]}},
        )

        assert issued.status == 201
        assert issued.body["kind"] == "TokenRequest"
        assert issued.body["status"]["expirationTimestamp"]
        assert review.status == 201
        assert review.body["status"]["authenticated"] is True
        user = review.body["status"]["user"]
        assert user["username"] == f"system:serviceaccount:{namespace.name}:robot"
        assert f"system:serviceaccounts:{namespace.name}" in user["groups"]

    def test_a_token_for_nobody_is_not_found(self, namespace: Namespace) -> None:
        answer = namespace.api.post(
            namespace.path("serviceaccounts", "no") + "/token", {"spec": {}}
        )

        assert (answer.status, answer.reason) == (404, "NotFound")

    def test_nonsense_is_not_authenticated(self, api: Api) -> None:
        review = api.post(
            "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nonsense"}}
        )

        assert review.status == 201
        assert not review.body["status"].get("authenticated", False)

    @pytest.mark.parametrize(
        ("user", "groups", "allowed"),
        [("root", ["system:masters"], True), ("nobody", [], False)],
    )
    def test_access_is_reviewed(
        self, api: Api, user: str, groups: list[str], allowed: bool
    ) -> None:
        spec = {
            "user": user,
            "groups": groups,
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }

        review = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})

        assert review.status == 201
        assert review.body["status"]["allowed"] is allowed

    @pytest.mark.parametrize(
        ("account", "verb", "resource", "subresource", "allowed"),
        [
            ("node-controller", "patch", "nodes", "", True),
            ("node-controller", "patch", "nodes", "status", True),
            ("node-controller", "delete", "nodes", "", True),
            ("node-controller", "patch", "services", "", False),
            ("service-controller", "patch", "services", "status", True),
            ("service-controller", "patch", "services", "", False),
            ("route-controller", "patch", "nodes", "status", True),
            ("route-controller", "delete", "nodes", "", False),
        ],
    )
    def test_the_controllers_roles_are_there(
        self, api: Api, account: str, verb: str, resource: str, subresource: str, allowed: bool
    ) -> None:
        attributes = {"verb": verb, "resource": resource, "subresource": subresource}
        spec = {
            "user": f"system:serviceaccount:kube-system:{account}",
            "resourceAttributes": attributes,
        }

        review = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})

        assert review.body["status"]["allowed"] is allowed


class TestServing:
    @pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
    def test_health_is_ok(self, api: Api, path: str) -> None:
        answer = api.get(path)

        assert (answer.status, answer.body) == (200, "ok")

    def test_the_version_says_which_kubernetes(self, api: Api) -> None:
        answer = api.get("/version").body

        assert answer["major"] == "1"
        assert answer["gitVersion"].startswith("v1.37")

    @pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps/v1/nothing"])
    def test_discovery(self, api: Api, path: str) -> None:
        kinds = {"/api": "APIVersions", "/apis": "APIGroupList", "/api/v1": "APIResourceList"}
        answer = api.get(path)

        assert answer.status == (200 if path in kinds else 404)
        assert answer.status == 404 or answer.body["kind"] == kinds[path]

    def test_discovery_names_verbs_and_subresources(self, api: Api) -> None:
        resources = {r["name"]: r for r in api.get("/api/v1").body["resources"]}

        assert resources["nodes"]["namespaced"] is False
        assert resources["nodes"]["shortNames"] == ["no"]
        assert set(resources["nodes"]["verbs"]) >= {"create", "delete", "get", "list", "watch"}
        assert set(resources["nodes/status"]["verbs"]) == {"get", "patch", "update"}
        assert resources["services"]["shortNames"] == ["svc"]

    def test_the_system_namespaces_are_there(self, api: Api) -> None:
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            assert api.get(f"/api/v1/namespaces/{name}").body["status"]["phase"] == "Active"
