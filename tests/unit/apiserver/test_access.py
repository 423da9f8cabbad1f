"""Who may do what, and how one proves who one is."""

from dataclasses import replace

import pytest

from pileus_lab.apiserver.identity import User, authenticated, service_account, subject_of
from tests.unit.apiserver.caller import DEFAULT, MAPS, NODES, Caller, caller, config_map, node

ROLES = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = f"{DEFAULT}/serviceaccounts"
SYSTEM = "/api/v1/namespaces/kube-system"


def test_the_anonymous_see_health_and_version_only():
    call = replace(caller(), user=None)

    assert call("GET", "/healthz").status == 200
    assert call("GET", "/version").status == 200
    refused = call("GET", NODES)
    assert (refused.status, refused.message) == (
        403,
        (
            'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group '
            '"" at the cluster scope'
        ),
    )
    assert call("GET", "/api").message == (
        'forbidden: User "system:anonymous" cannot get path "/api"'
    )


def test_a_wrong_token_is_nobody():
    call = replace(caller(), user=None)

    answer = call("GET", "/version", token="nonsense")

    assert (answer.status, answer.message) == (401, "Unauthorized")


def test_a_token_that_is_not_utf8_is_nobodys():
    call = replace(caller(tokens={"s3cret": User("jane")}), user=None)

    assert call("GET", "/version", token="\udcff").status == 401


def test_a_known_token_is_somebody():
    call = replace(caller(tokens={"s3cret": User("jane", ("system:masters",))}), user=None)

    assert call("GET", NODES, token="s3cret").status == 200


def as_controller(call: Caller, name: str) -> Caller:
    return replace(call, user=service_account("kube-system", name))


@pytest.mark.parametrize(
    ("controller", "method", "path", "allowed"),
    [
        ("node-controller", "GET", NODES, True),
        ("node-controller", "DELETE", f"{NODES}/n", True),
        ("node-controller", "PATCH", f"{NODES}/n/status", True),
        ("node-controller", "GET", f"{DEFAULT}/services", False),
        ("service-controller", "GET", "/api/v1/services", True),
        ("service-controller", "PATCH", f"{DEFAULT}/services/s", False),
        ("service-controller", "PATCH", f"{DEFAULT}/services/s/status", True),
        ("route-controller", "PATCH", f"{NODES}/n/status", True),
        ("route-controller", "PATCH", f"{NODES}/n", False),
        ("route-controller", "GET", f"{NODES}/n", False),
    ],
)
def test_controllers_have_the_rights_of_the_real_server(
    controller: str, method: str, path: str, *, allowed: bool
):
    call = as_controller(caller(), controller)

    answer = call(method, path, {}, media="application/merge-patch+json")

    assert (answer.status != 403) is allowed


def test_a_role_in_a_namespace_ends_at_its_border():
    call = caller()
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["a"]}
    ]
    call.create(f"{ROLES}/namespaces/default/roles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    call.create(f"{ROLES}/namespaces/default/rolebindings", binding)
    call.create(MAPS, config_map("a"))
    jane = replace(call, user=authenticated(User("jane")))

    assert jane("GET", f"{MAPS}/a").status == 200
    assert jane("GET", f"{MAPS}/b").status == 403
    assert jane("GET", MAPS).status == 403
    assert jane("GET", f"{SYSTEM}/configmaps/a").status == 403
    call("DELETE", f"{ROLES}/namespaces/default/rolebindings/b")
    assert jane("GET", f"{MAPS}/a").status == 403


def test_a_service_account_token_works_until_it_ends_or_its_account_goes():
    call = caller()
    call.create(ACCOUNTS, {"metadata": {"name": "sa"}})

    def issue(seconds: int) -> str:
        answer = call("POST", f"{ACCOUNTS}/sa/token", {"spec": {"expirationSeconds": seconds}})
        assert answer.status == 201, answer.body
        return answer.body["status"]["token"]

    short, long = issue(600), issue(7200)
    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    holder = replace(call, user=None)
    first = holder("POST", who, {}, token=short)
    call.clock.advance(601)
    expired = holder("POST", who, {}, token=short)
    good = holder("POST", who, {}, token=long)
    call("DELETE", f"{ACCOUNTS}/sa")
    orphaned = holder("POST", who, {}, token=long)

    assert first.body["status"]["userInfo"]["username"] == "system:serviceaccount:default:sa"
    assert [a.status for a in (expired, good, orphaned)] == [401, 201, 401]


def test_a_token_of_another_server_is_worth_nothing():
    other = caller(1)
    other.create(ACCOUNTS, {"metadata": {"name": "sa"}})
    token = other.create(f"{ACCOUNTS}/sa/token", {"spec": {}})["status"]["token"]

    assert replace(caller(2), user=None)("GET", NODES, token=token).status == 401


def test_short_tokens_are_not_given():
    call = caller()
    call.create(ACCOUNTS, {"metadata": {"name": "sa"}})

    answer = call("POST", f"{ACCOUNTS}/sa/token", {"spec": {"expirationSeconds": 5}})

    assert answer.status == 422
    assert "may not specify a duration less than 10 minutes" in answer.message


def test_a_token_review_tells_whose_token_it_is():
    call = caller(tokens={"s3cret": User("jane", ("devs",))})
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    known = call("POST", path, {"spec": {"token": "s3cret"}}).body
    unknown = call("POST", path, {"spec": {"token": "abc"}}).body

    assert known["status"]["authenticated"] is True
    assert known["status"]["user"] == {"username": "jane", "groups": ["devs"]}
    assert unknown["status"] == {"user": {}, "error": "invalid bearer token"}


def test_access_reviews_tell_who_may_what():
    call = caller()
    path = "/apis/authorization.k8s.io/v1"
    question = {"resourceAttributes": {"verb": "list", "resource": "nodes"}}
    account = "system:serviceaccount:kube-system:route-controller"

    other = call.create(f"{path}/subjectaccessreviews", {"spec": {"user": account, **question}})
    stranger = call.create(f"{path}/subjectaccessreviews", {"spec": {"user": "x", **question}})
    myself = call.create(f"{path}/selfsubjectaccessreviews", {"spec": question})
    empty = call("POST", f"{path}/selfsubjectaccessreviews", {"spec": {}})

    assert other["status"]["allowed"] is True
    assert 'ClusterRoleBinding "system:controller:route-controller"' in other["status"]["reason"]
    assert stranger["status"] == {"allowed": False}
    assert myself["status"]["allowed"] is True
    assert empty.status == 422


def test_a_client_certificate_names_user_and_groups():
    subject = ((("organizationName", "devs"),), (("commonName", "jane"),))

    assert subject_of({"subject": subject}) == User("jane", ("devs", "system:authenticated"))
    assert subject_of({"subject": ()}) is None


def test_the_authority_of_clients_is_told_to_those_who_may_read_it():
    call = caller(client_authority="PEM")
    path = f"{SYSTEM}/configmaps/extension-apiserver-authentication"
    reader = replace(call, user=authenticated(User("system:kube-controller-manager")))

    assert reader.get(path)["data"] == {"client-ca-file": "PEM"}
    assert replace(call, user=authenticated(User("x")))("GET", path).status == 403


def test_a_master_may_be_somebody_else_and_others_may_not():
    call = caller()
    headers = {"impersonate-user": "x"}

    def as_x(user: User) -> int:
        from pileus_lab.apiserver.call import Request

        request = Request(method="GET", path=NODES, headers=headers, peer=user)
        return call.api.respond(request).status

    call.create(NODES, node("n"))
    assert as_x(User("admin", ("system:masters",))) == 403
    headers["impersonate-group"] = "system:masters"
    assert as_x(User("admin", ("system:masters",))) == 200
    assert as_x(User("jane")) == 403
