"""Who may do what: escalation, creation by PUT, rights by name."""

import pytest

from tests.contract.api.http import Answer, Namespace, WatchRefused
from tests.contract.api.people import (
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    RBAC,
    RBAC_V1,
    Person,
    Rule,
    binding,
    rule,
    until,
)

READ_MAPS = rule("get list", "configmaps")
READ_SECRETS = rule("get list", "secrets")
WRITE_ROLES = rule("get create update patch", "roles rolebindings", group=RBAC)


@pytest.fixture
def jane(namespace: Namespace) -> Person:
    return Person(namespace)


class TestEscalation:
    def test_a_role_with_rights_that_one_has_can_be_created(self, jane: Person) -> None:
        jane.may(WRITE_ROLES, READ_MAPS)

        assert jane.create_role("held", rule("get", "configmaps")).status == 201
        assert jane.create_role("named", rule("get", "configmaps", "a")).status == 201

    def test_a_role_with_more_rights_than_one_has_is_refused(self, jane: Person) -> None:
        jane.may(WRITE_ROLES, READ_MAPS)

        answer = jane.create_role("more", READ_MAPS, READ_SECRETS)

        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert answer.message == (
            f'roles.{RBAC} "more" is forbidden: user "{jane.name}" '
            '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not '
            'currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
        )

    @pytest.mark.parametrize(
        "wanted",
        [
            rule("get list delete", "configmaps"),
            rule("get", "configmaps/status"),
            rule("get", "configmaps", group="apps"),
            rule("*", "configmaps"),
            rule("get", "*"),
            rule("get", "configmaps", group="*"),
        ],
    )
    def test_no_part_of_a_rule_may_be_more(self, jane: Person, wanted: Rule) -> None:
        jane.may(WRITE_ROLES, READ_MAPS)

        assert jane.create_role("more", wanted).status == 403

    def test_rights_by_name_do_not_cover_all_names(self, jane: Person) -> None:
        jane.may(WRITE_ROLES, rule("get", "configmaps", "a", "b"))

        assert jane.create_role("one", rule("get", "configmaps", "b")).status == 201
        assert jane.create_role("other", rule("get", "configmaps", "c")).status == 403
        assert jane.create_role("any", rule("get", "configmaps")).status == 403

    def test_the_right_to_escalate_lifts_the_limit(self, jane: Person) -> None:
        jane.may(WRITE_ROLES, rule("escalate", "roles", group=RBAC))

        assert jane.create_role("more", READ_SECRETS).status == 201

    def test_changes_are_judged_as_a_whole(self, jane: Person) -> None:
        jane.may(WRITE_ROLES, READ_MAPS)
        path = jane.space.path("roles", "there", group=RBAC_V1)
        body = {"metadata": {"name": "there"}, "rules": [READ_SECRETS]}
        assert jane.space.api.post(jane.space.path("roles", group=RBAC_V1), body).status == 201

        label = jane.api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        finalizer = jane.api.patch(path, {"metadata": {"finalizers": ["example.com/a"]}})
        none = jane.api.patch(path, {"metadata": {"finalizers": None}})
        less = jane.api.patch(path, {"rules": [READ_MAPS]})
        more = jane.api.put(path, body)

        assert (label.status, label.reason) == (403, "Forbidden")
        assert finalizer.status == 200  # only what garbage collection needs
        assert none.status == 200
        assert less.status == 200
        assert more.status == 403

    def test_a_cluster_role_needs_rights_in_all_namespaces(self, jane: Person, fresh: str) -> None:
        jane.may(READ_MAPS)
        admin = jane.space.api
        subject = {"kind": "User", "name": jane.name, "apiGroup": RBAC}
        rules = [rule("create", "clusterroles", group=RBAC), rule("get", "services")]
        admin.post(CLUSTER_ROLES, {"metadata": {"name": fresh}, "rules": rules})
        admin.post(CLUSTER_BINDINGS, binding(fresh, fresh, subject, "ClusterRole"))

        def make(name: str, *granted: Rule) -> Answer:
            body = {"metadata": {"name": f"{fresh}-{name}"}, "rules": list(granted)}
            return jane.api.post(CLUSTER_ROLES, body)

        until(lambda: make("held", rule("get", "services")).status in {201, 409})
        everywhere = make("more", rule("get", "configmaps"))
        url = make("url", {"nonResourceURLs": ["/metrics"], "verbs": ["get"]})

        assert everywhere.status == 403
        assert url.status == 403
        assert '{NonResourceURLs:["/metrics"], Verbs:["get"]}' in url.message
        for path in (CLUSTER_BINDINGS, CLUSTER_ROLES):
            admin.delete(f"{path}/{fresh}")
        admin.delete(f"{CLUSTER_ROLES}/{fresh}-held")


class TestBindings:
    @pytest.fixture
    def role(self, jane: Person) -> str:
        body = {"metadata": {"name": "secrets"}, "rules": [READ_SECRETS]}
        made = jane.space.api.post(jane.space.path("roles", group=RBAC_V1), body)
        assert made.status == 201, made
        return "secrets"

    def test_binding_a_role_with_more_rights_than_one_has_is_refused(
        self, jane: Person, role: str
    ) -> None:
        jane.may(WRITE_ROLES)

        answer = jane.create_binding("b", role)

        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert answer.message.startswith(
            f'rolebindings.{RBAC} "b" is forbidden: user "{jane.name}" '
        )

    def test_binding_rights_that_one_has_is_allowed(self, jane: Person, role: str) -> None:
        jane.may(WRITE_ROLES, READ_SECRETS)

        assert jane.create_binding("b", role).status == 201

    @pytest.mark.parametrize("name", ["secrets", "other"])
    def test_the_right_to_bind_is_asked_for_that_role(
        self, jane: Person, role: str, name: str
    ) -> None:
        jane.may(WRITE_ROLES, rule("bind", "roles", name, group=RBAC))

        assert jane.create_binding("b", role).status == (201 if name == role else 403)

    def test_a_change_of_subjects_is_a_grant(self, jane: Person, role: str) -> None:
        jane.may(WRITE_ROLES)
        subject = {"kind": "User", "name": "bob", "apiGroup": RBAC}
        path = jane.space.path("rolebindings", group=RBAC_V1)
        assert jane.space.api.post(path, binding("b", role, subject)).status == 201

        more = jane.api.patch(f"{path}/b", {"subjects": [subject, subject | {"name": "eve"}]})

        assert more.status == 403

    def test_a_role_that_does_not_exist_cannot_be_bound_without_the_right_to_bind(
        self, jane: Person
    ) -> None:
        jane.may(WRITE_ROLES)

        answer = jane.create_binding("b", "missing")

        assert (answer.status, answer.reason) == (404, "NotFound")

    def test_a_cluster_role_can_be_bound_in_a_namespace(self, jane: Person) -> None:
        jane.may(WRITE_ROLES)

        assert jane.create_binding("b", "cluster-admin", "ClusterRole").status == 403


class TestCreationByPut:
    LEASE = "coordination.k8s.io"

    def test_a_put_that_creates_needs_the_right_to_create(self, jane: Person) -> None:
        jane.may(rule("update get", "leases", group=self.LEASE))
        path = jane.space.path("leases", "one", group=f"{self.LEASE}/v1")
        body = {"metadata": {"name": "one"}}

        answer = jane.api.put(path, body)

        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert answer.message.startswith(f'leases.{self.LEASE} "one" is forbidden: ')
        assert jane.space.api.get(path).status == 404

    def test_with_both_rights_it_creates(self, jane: Person) -> None:
        jane.may(
            rule("update", "leases", group=self.LEASE), rule("create", "leases", group=self.LEASE)
        )
        path = jane.space.path("leases", "one", group=f"{self.LEASE}/v1")

        assert jane.api.put(path, {"metadata": {"name": "one"}}).status == 201

    def test_a_right_to_create_by_name_counts(self, jane: Person) -> None:
        both = rule("update create", "leases", "one", group=self.LEASE)
        jane.may(both)
        path = jane.space.path("leases", "one", group=f"{self.LEASE}/v1")

        assert jane.api.put(path, {"metadata": {"name": "one"}}).status == 201


class TestRightsByName:
    @pytest.fixture
    def maps(self, jane: Person) -> str:
        for name in ("a", "b"):
            jane.space.config_map(name)
        jane.may(rule("get list watch delete deletecollection", "configmaps", "a"))
        return jane.space.path("configmaps")

    @pytest.mark.parametrize(
        ("selector", "status"),
        [
            ("metadata.name=a", 200),
            ("metadata.name==a", 200),
            ("metadata.name=a,metadata.namespace!=x", 200),
            ("metadata.name=b", 403),
            ("metadata.name!=a", 403),
            ("metadata.namespace=a", 403),
            ("", 403),
        ],
    )
    def test_a_list_that_selects_a_name_is_one_of_that_name(
        self, jane: Person, maps: str, selector: str, status: int
    ) -> None:
        query = {"fieldSelector": selector} if selector else {}

        listed = jane.api.get(maps, **query)

        assert listed.status == status, listed
        if status == 200:
            assert [each["metadata"]["name"] for each in listed.body["items"]] == ["a"]

    def test_so_is_a_watch(self, jane: Person, maps: str) -> None:
        with jane.api.watch(maps, fieldSelector="metadata.name=a") as events:
            assert next(events)["object"]["metadata"]["name"] == "a"
        with pytest.raises(WatchRefused), jane.api.watch(maps, fieldSelector="metadata.name=b"):
            pass

    def test_but_not_a_deletion_of_many(self, jane: Person, maps: str) -> None:
        answer = jane.api.delete(maps, fieldSelector="metadata.name=a")

        assert answer.status == 403

    def test_the_refusal_names_it(self, jane: Person, maps: str) -> None:
        answer = jane.api.get(maps, fieldSelector="metadata.name=b")

        assert answer.message == (
            f'configmaps "b" is forbidden: User "{jane.name}" cannot list resource "configmaps" '
            f'in API group "" in the namespace "{jane.space.name}"'
        )
