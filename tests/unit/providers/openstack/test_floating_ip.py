"""The floating IP of a load balancer: which changes are planned, and which are never planned."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import Effect, Owner
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    NotFound,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
)
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.floating_ip import (
    AttachFloatingIp,
    CreateFloatingIp,
    DeleteFloatingIp,
    DetachFloatingIp,
    FloatingIps,
    FloatingIpSpec,
    KeepFloatingIp,
    MarkFloatingIp,
    apply,
    description_of,
    ignored_address,
    plan,
)
from pileus.providers.openstack.marks import KEPT, for_tags, owner_of, tags_of
from pileus.providers.openstack.networks import FloatingChoice
from pileus.providers.openstack.neutron import FloatingIp, Neutron, PortDetails

OWNER = Owner("cluster-1", "uid-1")
TWIN = Owner("cluster-2", "uid-1")
DESCRIPTION = description_of("shop", "web", "kubernetes")
SPEC = FloatingIpSpec(
    owner=OWNER, description=DESCRIPTION, choice=FloatingChoice(network_id="public")
)
INTERNAL = replace(SPEC, is_wanted=False)
PORT = "vip-port"
FREE = FloatingIp(
    id="f1",
    floating_ip_address="1.0.0.5",
    floating_network_id="public",
    description=DESCRIPTION,
    revision_number=4,
)
HERE = msgspec.structs.replace(FREE, port_id=PORT)
OURS = msgspec.structs.replace(HERE, tags=tags_of(OWNER))
USERS = msgspec.structs.replace(HERE, description="mine")


def changed(one: FloatingIp, **fields: Any) -> FloatingIp:
    return msgspec.structs.replace(one, **fields)


def planned(spec: FloatingIpSpec, *found: FloatingIp, port: str = PORT) -> tuple[object, ...]:
    return plan(spec, port, FloatingIps(found).of(spec, port))


def test_the_description_is_the_one_of_the_go_cloud_controller_manager() -> None:
    assert (
        DESCRIPTION
        == "Floating IP for Kubernetes external service shop/web from cluster kubernetes"
    )
    assert len(description_of("ü" * 63, "s" * 63, "c" * 200).encode()) <= 255


def test_a_new_one_is_created_on_the_vip_port_with_the_mark_of_its_owner() -> None:
    (create,) = planned(SPEC)
    assert create == CreateFloatingIp(DESCRIPTION, "public", (), "", PORT, OWNER)
    assert CreateFloatingIp.effect is Effect.CREATE


def test_nothing_is_created_before_the_load_balancer_exists() -> None:
    assert planned(SPEC, port="") == ()


def test_one_that_is_marked_and_attached_needs_no_change() -> None:
    assert planned(SPEC, OURS) == ()


def test_a_crash_between_create_and_mark_leaves_one_that_is_marked_later() -> None:
    assert planned(SPEC, HERE) == (MarkFloatingIp(HERE, OWNER),)


def test_one_of_the_user_on_the_vip_port_is_used_and_never_marked() -> None:
    assert planned(SPEC, USERS) == ()


def test_one_that_belongs_to_a_cluster_of_the_same_name_is_never_marked_or_deleted() -> None:
    theirs = changed(HERE, tags=tags_of(TWIN))
    assert planned(SPEC, theirs) == ()
    assert planned(replace(INTERNAL, detaches=False), theirs) == ()
    assert planned(SPEC, changed(FREE, tags=tags_of(TWIN))) == planned(SPEC)
    assert planned(SPEC, changed(FREE)) == planned(SPEC), "a description is no proof"


def test_our_free_one_is_attached_again_so_that_the_address_stays() -> None:
    left = changed(OURS, port_id=None)
    assert planned(SPEC, left) == (AttachFloatingIp(left, PORT),)
    assert planned(SPEC, left, port="") == ()


def test_the_requested_address_is_attached_if_it_is_free_and_reserved() -> None:
    permits = for_tags("cluster-1", "shop", "web")
    spec = replace(SPEC, address="1.0.0.5", permits=permits)
    for tag in permits:
        reserved = changed(FREE, description="mine", tags=(tag,))
        assert planned(spec, reserved) == (AttachFloatingIp(reserved, PORT),)
    mine = changed(FREE, description="mine")
    assert planned(replace(spec, may_use_foreign=True), mine) == (AttachFloatingIp(mine, PORT),)
    former = changed(FREE, description=DESCRIPTION)
    assert planned(spec, former) == (AttachFloatingIp(former, PORT),)


def test_one_that_is_kept_is_reserved_for_its_service_in_its_cluster():
    kept = replace(SPEC, is_kept=True, permits=for_tags("cluster-1", "shop", "web"))
    (create,) = planned(kept)
    (left,) = planned(replace(kept, is_wanted=False), OURS)
    assert isinstance(create, CreateFloatingIp)
    assert create.reserved_for == "pileus.dev/for=cluster-1/shop/web"
    assert left == MarkFloatingIp(OURS, None, create.reserved_for)

    free = changed(FREE, tags=(create.reserved_for,))
    again = replace(kept, address="1.0.0.5")
    assert planned(again, free) == (AttachFloatingIp(free, PORT),)
    theirs = replace(again, owner=TWIN, permits=for_tags("cluster-2", "shop", "web"))
    with pytest.raises(Misconfigured, match="not reserved"):
        planned(theirs, free)


@pytest.mark.parametrize(
    "tags",
    [
        (),
        ("billing=a",),
        ("pileus.dev/for=cluster-1/other",),
        ("pileus.dev/for=cluster-1/shop/other",),
        ("pileus.dev/for=cluster-2",),
        ("pileus.dev/keep=true",),
    ],
)
def test_a_free_one_that_is_not_reserved_for_the_service_is_not_taken(
    tags: tuple[str, ...],
) -> None:
    spec = replace(SPEC, address="1.0.0.5", permits=for_tags("cluster-1", "shop", "web"))
    free = changed(FREE, description="of a database", tags=tags)
    with pytest.raises(Misconfigured, match="--tag pileus.dev/for=cluster-1/shop/web 1.0.0.5"):
        planned(spec, free)


def test_the_requested_address_stays_the_users_even_with_our_description() -> None:
    spec = replace(SPEC, address="1.0.0.5")
    assert planned(spec, HERE) == (KeepFloatingIp(HERE),)
    kept = changed(HERE, tags=(KEPT,))
    assert planned(spec, kept) == ()
    assert planned(SPEC, kept) == (), "also when the Service names it no longer"
    assert planned(INTERNAL, kept) == (DetachFloatingIp(kept),)
    assert planned(replace(INTERNAL, detaches=False), kept) == ()


def test_the_tag_to_keep_one_wins_over_the_mark() -> None:
    both = changed(OURS, tags=(*OURS.tags, KEPT))
    assert planned(SPEC, both) == (MarkFloatingIp(both, None),)
    assert planned(INTERNAL, both) == (MarkFloatingIp(both, None),)


def test_a_requested_address_that_does_not_exist_is_created_for_a_trusted_namespace() -> None:
    choice = FloatingChoice(network_id="public", subnet_ids=("a",))
    spec = replace(SPEC, address="1.0.0.9", choice=choice)
    trusted = replace(spec, may_use_foreign=True)
    create = CreateFloatingIp(DESCRIPTION, "public", (), "1.0.0.9", PORT, OWNER)
    assert planned(trusted) == (create,)
    with pytest.raises(Misconfigured, match="does not exist, is in use, or not reserved"):
        planned(spec)


def test_a_requested_address_in_use_is_refused_and_its_user_is_not_named() -> None:
    details = PortDetails(device_owner="compute:az1", device_id="server-7")
    taken = changed(FREE, port_id="other-port", port_details=details)
    spec = replace(SPEC, address="1.0.0.5")
    for trusted in (False, True):
        asked = replace(spec, may_use_foreign=trusted)
        with pytest.raises(Misconfigured, match="in use, or not reserved") as refusal:
            planned(asked, taken)
        assert not re.search("other-port|compute|server-7", str(refusal.value))
        with pytest.raises(Misconfigured, match="in use, or not reserved"):
            planned(asked, taken, port="")


def test_a_requested_address_of_another_service_is_refused_also_in_a_trusted_namespace() -> None:
    spec = replace(SPEC, address="1.0.0.5", may_use_foreign=True)
    with pytest.raises(Misconfigured, match="in use, or not reserved") as refusal:
        planned(spec, changed(FREE, tags=tags_of(TWIN)))
    assert "cluster-2" not in str(refusal.value)


def test_another_requested_address_than_the_attached_one_changes_nothing_and_is_reported() -> None:
    spec = replace(SPEC, address="1.0.0.9")
    free = changed(FREE, id="f9", floating_ip_address="1.0.0.9")
    assert planned(spec, OURS, free) == ()
    assert "has floating IP 1.0.0.5" in ignored_address(spec, PORT, FloatingIps((OURS, free)))
    assert not ignored_address(SPEC, PORT, FloatingIps((OURS,)))


def test_a_kept_one_loses_its_mark_and_is_only_detached() -> None:
    kept = replace(SPEC, is_kept=True)
    assert planned(kept, OURS) == (MarkFloatingIp(OURS, None),)
    assert planned(kept, HERE) == ()
    assert planned(replace(kept, is_wanted=False), OURS) == (MarkFloatingIp(OURS, None),)
    assert planned(replace(kept, is_wanted=False), HERE) == (DetachFloatingIp(HERE),)
    assert planned(replace(kept, is_wanted=False, detaches=False), HERE) == ()
    (create,) = planned(kept)
    assert isinstance(create, CreateFloatingIp)
    assert create.owner is None


def test_a_service_that_becomes_internal_deletes_ours_and_detaches_the_users() -> None:
    assert planned(INTERNAL, OURS) == (DeleteFloatingIp(OURS),)
    assert planned(INTERNAL, HERE) == (DeleteFloatingIp(HERE),)
    assert planned(INTERNAL, USERS) == (DetachFloatingIp(USERS),)


def test_a_deleted_service_that_nobody_knows_any_more_deletes_only_by_mark() -> None:
    unknown = FloatingIpSpec(owner=OWNER, is_wanted=False, detaches=False)
    left = changed(OURS, id="f2", port_id=None)
    assert planned(unknown, HERE) == ()
    assert planned(unknown, HERE, left) == (DeleteFloatingIp(left),)
    assert planned(unknown, left, port="") == (DeleteFloatingIp(left),)


def test_ours_that_the_user_moved_to_another_port_is_handed_over() -> None:
    moved = changed(OURS, id="f2", port_id="other-port")
    assert planned(INTERNAL, moved) == (MarkFloatingIp(moved, None),)
    assert planned(SPEC, OURS, moved) == (MarkFloatingIp(moved, None),)


def test_leftovers_with_our_mark_are_deleted_when_another_one_is_in_use() -> None:
    left = changed(OURS, id="f2", port_id=None)
    assert planned(SPEC, OURS, left) == (DeleteFloatingIp(left),)


def test_a_service_that_shares_a_load_balancer_decides_nothing_about_its_floating_ip() -> None:
    secondary = replace(SPEC, may_attach=False)
    assert planned(secondary, HERE) == ()
    assert planned(replace(secondary, is_wanted=False), HERE) == ()
    assert planned(replace(secondary, is_wanted=False), USERS) == ()
    with pytest.raises(Misconfigured, match="belongs to another Service"):
        planned(secondary)


def test_ours_stays_on_a_load_balancer_that_is_left_to_others_and_nowhere_else() -> None:
    left_to_others = replace(INTERNAL, may_attach=False, is_left_to_others=True)
    detached = changed(OURS, id="f2", port_id=None)
    planned_changes = planned(left_to_others, OURS, detached)
    assert planned_changes == (MarkFloatingIp(OURS, None), DeleteFloatingIp(detached))


def test_without_external_network_nothing_is_created() -> None:
    assert planned(replace(SPEC, choice=FloatingChoice())) == ()


def test_an_ambiguous_network_matters_only_if_one_has_to_be_created() -> None:
    spec = replace(SPEC, choice=FloatingChoice(problem="2 external networks"))
    assert planned(spec, OURS) == ()
    with pytest.raises(Misconfigured, match="2 external networks"):
        planned(spec, port="")


addresses = st.sampled_from(["1.0.0.1", "1.0.0.2"])
floating_ips = st.builds(
    FloatingIp,
    id=st.sampled_from(["a", "b", "c"]),
    floating_ip_address=addresses,
    floating_network_id=st.just("public"),
    description=st.sampled_from(["", "mine", DESCRIPTION]),
    port_id=st.sampled_from([None, PORT, "other-port"]),
    tags=st.sampled_from([(), ("x",), tags_of(OWNER), tags_of(TWIN), tags_of(OWNER)[:1], (KEPT,)]),
)
specs = st.builds(
    FloatingIpSpec,
    owner=st.just(OWNER),
    description=st.sampled_from(["", DESCRIPTION]),
    is_wanted=st.booleans(),
    is_kept=st.booleans(),
    address=st.sampled_from(["", "1.0.0.1"]),
    choice=st.just(FloatingChoice(network_id="public")),
    may_attach=st.booleans(),
    detaches=st.booleans(),
)
worlds = st.lists(floating_ips, max_size=3, unique_by=lambda one: one.id)


@given(specs, worlds, st.sampled_from(["", PORT]))
def test_only_what_is_proven_ours_is_deleted_or_marked(
    spec: FloatingIpSpec, world: list[FloatingIp], port: str
) -> None:
    try:
        changes = plan(spec, port, FloatingIps(tuple(world)).of(spec, port))
    except Misconfigured:
        return
    for change in changes:
        if isinstance(change, CreateFloatingIp):
            continue
        one = change.floating_ip
        is_ours = owner_of(one.tags) == OWNER
        is_proven = (
            one.port_id == port
            and one.description == spec.description
            and one.tags in {(), ("x",)}
            and spec.may_attach
        )
        assert is_ours or not isinstance(change, DeleteFloatingIp) or is_proven
        if isinstance(change, DeleteFloatingIp):
            assert not spec.is_kept
            assert KEPT not in one.tags
            assert one.port_id in {None, port}
        if isinstance(change, MarkFloatingIp):
            assert is_proven if change.owner else is_ours
        if isinstance(change, DetachFloatingIp):
            assert one.port_id == port
        if isinstance(change, AttachFloatingIp):
            assert one.port_id is None


class Answers:
    """Answers requests one after the other: JSON, or an error."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, CloudError):
            raise answer
        return answer


CREATED = {"floatingip": msgspec.to_builtins(HERE)}
CREATE = CreateFloatingIp(DESCRIPTION, "public", ("a", "b"), "", PORT, OWNER)


async def test_it_is_created_and_attached_by_one_request_and_then_marked() -> None:
    api = Answers(CREATED, {"tags": []})
    after = await apply(Neutron(Client(api)), replace(CREATE, subnet_ids=()), FloatingIps())
    create, mark = api.calls
    assert create.body == {
        "floatingip": {
            "floating_network_id": "public",
            "port_id": PORT,
            "description": DESCRIPTION,
        }
    }
    assert (mark.method, mark.path) == ("PUT", "/v2.0/floatingips/f1/tags")
    assert plan(SPEC, PORT, after) == ()


async def test_a_subnet_without_free_addresses_is_skipped() -> None:
    api = Answers(QuotaExceeded("No more IP addresses"), CREATED, {"tags": []})
    await apply(Neutron(Client(api)), CREATE, FloatingIps())
    assert [call.body["floatingip"]["subnet_id"] for call in api.calls[:2]] == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (QuotaExceeded("Quota exceeded [req-1]"), QuotaExceeded, r"\[req-1\].*openstack quota set"),
        (Unauthorized("disallowed by policy"), Misconfigured, "does not exist, is in use"),
        (NotFound("External network x is not reachable"), Misconfigured, "router add subnet"),
        (NotFound("Port could not be found"), Conflict, "was deleted since"),
        (Conflict("already associated"), Conflict, "already associated"),
        (Unavailable("503"), Unavailable, "503"),
    ],
)
async def test_errors_name_the_object_and_the_next_step(
    answer: CloudError, kind: type[CloudError], said: str
) -> None:
    change = replace(CREATE, subnet_ids=(), address="1.0.0.9")
    with pytest.raises(kind, match=said):
        await apply(Neutron(Client(Answers(answer))), change, FloatingIps())


async def test_changes_are_refused_if_it_was_changed_since_it_was_observed() -> None:
    api = Answers(CREATED, CREATED, None)
    neutron, observed = Neutron(Client(api)), FloatingIps((FREE,))
    observed = await apply(neutron, AttachFloatingIp(FREE, PORT), observed)
    assert observed.on(PORT) == HERE
    await apply(neutron, DetachFloatingIp(HERE), observed)
    assert await apply(neutron, DeleteFloatingIp(HERE), observed) == FloatingIps()
    assert [call.if_revision for call in api.calls] == [4, 4, 4]


async def test_other_tags_stay() -> None:
    api = Answers({"tags": []}, {"tags": []})
    neutron, tagged = Neutron(Client(api)), changed(HERE, tags=("x",))
    after = await apply(neutron, MarkFloatingIp(tagged, OWNER), FloatingIps((tagged,)))
    (one,) = after.found
    assert (one.tags, owner_of(one.tags)) == (("x", *tags_of(OWNER)), OWNER)
    after = await apply(neutron, MarkFloatingIp(one, None), after)
    assert after.found[0].tags == ("x",)


async def test_the_tag_to_keep_one_is_added_to_its_tags() -> None:
    api, tagged = Answers({"tags": []}), changed(HERE, tags=("x",))
    after = await apply(Neutron(Client(api)), KeepFloatingIp(tagged), FloatingIps((tagged,)))
    assert after.found[0].tags == ("x", KEPT)


def test_the_owners_of_a_cluster_are_found_by_marks() -> None:
    found = FloatingIps((OURS, USERS, changed(FREE, id="f3", tags=tags_of(TWIN))))
    assert found.owners("cluster-1") == {OWNER}
