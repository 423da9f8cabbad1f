"""When a ported provider is asked to get, ensure, update and delete, and with what."""

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.classic.errors import ImplementedElsewhere, Postponed, RetryError
from pileus.classic.service_records import needs_ensure
from pileus.cloud.balancer import BalancerState, Ingress, Wish
from pileus.cloud.errors import Conflict, Misconfigured, Unavailable
from pileus.cloud.model import Failure
from pileus.kube.model.core_v1 import (
    ClientIpConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    ServicePort,
    ServiceStatus,
    SessionAffinityConfig,
)
from tests.unit.classic.fakes import (
    GONE,
    OWNER,
    Access,
    Provider,
    Recorder,
    View,
    adapted,
    kube_node,
    kube_service,
    wish,
)


@asynccontextmanager
async def leading(**answers: Any):
    provider = Provider(Recorder(answers))
    view = View({name: kube_node(name) for name in ("n1", "n2", "n3")}, {OWNER.uid: kube_service()})
    cloud = adapted(provider)
    assert cloud.leading
    assert cloud.balancers
    async with cloud.leading(Access(view)):
        provider.record.calls.clear()
        yield cloud.balancers, provider.record, view


async def settle(balancers: Any, wanted: Wish) -> Any:
    seen = (await balancers.observe([wanted], deep=True))[wanted.owner]
    for change in balancers.changes(wanted, seen):
        seen = await balancers.apply(change, seen)
    return seen


async def test_a_new_service_is_ensured_without_being_asked_for_before():
    async with leading() as (balancers, record, view):
        seen = await settle(balancers, wish("n1", "n2"))

        assert record.calls == [("ensure", "blue", view.known_services[OWNER.uid], ["n1", "n2"])]
        assert seen.balancer.state is BalancerState.READY
        assert seen.balancer.ingress == (Ingress(ip="203.0.113.7"),)


async def test_a_service_as_it_was_last_passed_in_is_only_looked_at():
    async with leading() as (balancers, record, _):
        await settle(balancers, wish("n1"))
        seen = await settle(balancers, wish("n1"))

        assert record.names == ["ensure", "get"]
        assert seen.balancer.ingress == (Ingress(ip="203.0.113.7"),)


async def test_other_members_alone_are_an_update():
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1"))
        seen = await settle(balancers, wish("n1", "n3"))

        assert record.calls[1:] == [
            ("update", "blue", view.known_services[OWNER.uid], ["n1", "n3"])
        ]
        assert seen.balancer.ingress == (Ingress(ip="203.0.113.7"),)
        assert balancers.changes(wish("n1", "n3"), seen) == ()


async def test_another_provider_id_of_a_member_is_an_update():
    async with leading() as (balancers, record, _):
        await settle(balancers, wish("n1"))
        await settle(balancers, wish("n1", provider_id="fake://new"))

        assert record.names == ["ensure", "update"]


async def test_a_member_that_registers_again_has_the_provider_id_that_it_had():
    """When its Node has the ID again, the members are the same, and no update follows."""
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1", "n2"))
        view.known_nodes["n2"] = kube_node("n2", "fake://other")
        await settle(balancers, wish("n1", "n2", provider_id="fake://known"))

        given = {node.metadata.name: node.spec and node.spec.provider_id for node in record.nodes}
        assert given == {"n1": "fake://known", "n2": "fake://other"}
        assert view.known_nodes["n1"] == kube_node("n1"), "it is read-only"


async def test_a_published_load_balancer_is_known_without_a_note():
    """Its members are not: the core does not empty it before a second check of the nodes."""
    async with leading() as (balancers, record, view):
        service = kube_service()
        status = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="203.0.113.7"),))
        published = msgspec.structs.replace(service, status=ServiceStatus(load_balancer=status))
        for known, expected in ((published, "203.0.113.7"), (service, "")):
            view.known_services[OWNER.uid] = known
            seen = (await balancers.observe([wish()], deep=False))[OWNER]
            assert not isinstance(seen, Failure)

            shown = seen.balancer.ingress[0].ip if seen.balancer else ""
            assert shown == expected
            assert seen.balancer is None or seen.balancer.members is None
        assert record.names == []


async def test_a_service_that_names_a_load_balancer_is_refused():
    """It got one of its own, was reported as ready, and nothing said that the name is ignored."""
    async with leading() as (balancers, record, _):
        asked = replace(wish("n1"), adopts="lb-7")
        (seen,) = (await balancers.observe([asked], deep=True)).values()

        with pytest.raises(Misconfigured, match="pileus.dev/adopt.*Fix: remove the annotation"):
            balancers.changes(asked, seen)
        assert "ensure" not in record.names


async def test_another_service_is_ensured_whatever_its_members():
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1"))
        view.known_services[OWNER.uid] = kube_service(port=81)
        await settle(balancers, wish("n1", "n2"))

        assert record.names == ["ensure", "ensure"]
        assert record.calls[1][3] == ["n1", "n2"]


async def test_a_balancer_deleted_by_hand_is_ensured_again():
    async with leading() as (balancers, record, _):
        await settle(balancers, wish("n1"))
        record.answers["get"] = None
        await settle(balancers, wish("n1"))

        assert record.names == ["ensure", "get", "ensure"]


async def test_a_balancer_is_asked_for_before_it_is_deleted():
    async with leading() as (balancers, record, view):
        seen = await settle(balancers, GONE)

        service = view.known_services[OWNER.uid]
        assert record.calls == [("get", "blue", service), ("delete", "blue", service)]
        assert seen.balancer is None
        assert balancers.changes(GONE, seen) == ()


async def test_what_does_not_exist_is_not_deleted():
    async with leading(get=None) as (balancers, record, _):
        await settle(balancers, GONE)

        assert record.names == ["get"]


async def test_a_service_out_of_view_is_cleaned_up_as_it_was_last_passed_in():
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1"))
        last = view.known_services.pop(OWNER.uid)

        assert await balancers.owners(OWNER.cluster) == {OWNER}
        await settle(balancers, GONE)

        assert record.calls[1:] == [("get", "blue", last), ("delete", "blue", last)]
        assert await balancers.owners(OWNER.cluster) == frozenset()


async def test_a_service_nobody_remembers_is_unknown():
    async with leading() as (balancers, _, view):
        view.known_services.clear()

        assert await balancers.observe([GONE], deep=True) == {}


async def test_a_deletion_that_did_not_find_the_balancer_is_made_again():
    """Providers look it up before they delete it; that answer may have lacked it."""
    async with leading() as (balancers, record, _):
        await settle(balancers, GONE)
        record.is_deleted = False
        await settle(balancers, GONE)
        seen = await settle(balancers, GONE)

        assert seen.balancer is None
        assert record.names == ["get", "delete", "get", "delete", "get"]


async def test_a_service_that_went_after_its_balancer_is_still_asked_for():
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1"))
        await settle(balancers, GONE)
        last = view.known_services.pop(OWNER.uid)
        record.calls.clear()
        record.is_deleted = False  # the provider did not find it

        await settle(balancers, GONE)

        assert record.calls == [("get", "blue", last), ("delete", "blue", last)]


async def test_what_someone_else_deletes_is_not_asked_for_again():
    async with leading(delete=ImplementedElsewhere()) as (balancers, record, _):
        await settle(balancers, GONE)
        seen = await settle(balancers, GONE)

        assert seen.balancer is None
        assert record.names == ["get", "delete"]


async def test_what_someone_else_makes_is_left_alone_until_the_service_changes():
    async with leading(ensure=ImplementedElsewhere(), get=None) as (balancers, record, view):
        seen = await settle(balancers, wish("n1"))
        await settle(balancers, wish("n1"))

        assert record.names == ["ensure", "get"]
        assert seen.balancer is None
        view.known_services[OWNER.uid] = kube_service(port=81)
        await settle(balancers, wish("n1"))
        assert record.names[2:] == ["ensure"]


async def test_implemented_elsewhere_is_no_error_for_updates_and_deletions():
    elsewhere = ImplementedElsewhere()
    async with leading(update=elsewhere, delete=elsewhere) as (balancers, record, _):
        await settle(balancers, wish("n1"))
        await settle(balancers, wish("n2"))
        await settle(balancers, GONE)

        assert record.names == ["ensure", "update", "get", "delete"]


async def test_a_subclass_of_an_error_means_the_same():
    class MadeByTheOperator(ImplementedElsewhere):
        pass

    async with leading(ensure=MadeByTheOperator(), get=None) as (balancers, record, _):
        seen = await settle(balancers, wish("n1"))

        assert seen.balancer is None
        assert record.names == ["ensure"]


@pytest.mark.parametrize("method", ["ensure", "delete"])
async def test_a_wish_to_be_asked_later_is_heeded_even_when_wrapped(method):
    wrapped = ValueError("while building")
    wrapped.__cause__ = RetryError("quota refills", 42)
    async with leading(**{method: wrapped}) as (balancers, _, _view):
        with pytest.raises(Postponed) as told:
            await settle(balancers, wish("n1") if method == "ensure" else GONE)

        assert told.value.retry_after == 42


async def test_no_status_is_an_error():
    async with leading(ensure=None) as (balancers, _, _view):
        with pytest.raises(Unavailable, match="is nil"):
            await settle(balancers, wish("n1"))


async def test_a_failed_ensure_is_ensured_again_and_its_leftovers_are_known():
    async with leading(ensure=OSError("down")) as (balancers, record, _):
        with pytest.raises(Unavailable, match="^down$"):
            await settle(balancers, wish("n1"))

        assert await balancers.owners(OWNER.cluster) == {OWNER}
        del record.answers["ensure"]
        await settle(balancers, wish("n1"))
        assert record.names == ["ensure", "ensure"]


async def test_a_failed_update_is_looked_into_and_then_ensured():
    async with leading(update=OSError("down")) as (balancers, record, _):
        await settle(balancers, wish("n1"))
        with pytest.raises(Unavailable, match="^down$"):
            await settle(balancers, wish("n2"))
        await settle(balancers, wish("n2"))

        assert record.names == ["ensure", "update", "get", "ensure"]


async def test_a_failed_update_of_what_is_gone_is_no_failure_and_it_is_ensured():
    async with leading(update=OSError("down"), get=None) as (balancers, record, _):
        await settle(balancers, wish("n1"))
        with pytest.raises(Conflict):
            await settle(balancers, wish("n2"))
        await settle(balancers, wish("n2"))

        assert record.names == ["ensure", "update", "get", "ensure"]


async def test_a_failed_ensure_does_not_keep_new_members_from_an_update():
    async with leading() as (balancers, record, view):
        await settle(balancers, wish("n1"))
        view.known_services[OWNER.uid] = kube_service(port=81)
        record.answers["ensure"] = OSError("down")
        with pytest.raises(Unavailable):
            await settle(balancers, wish("n1"))
        record.calls.clear()
        with pytest.raises(Unavailable):
            await settle(balancers, wish("n1", "n2"))
        assert [(call[0], call[3]) for call in record.calls] == [
            ("update", ["n1", "n2"]),
            ("ensure", ["n1", "n2"]),
        ]

        del record.answers["ensure"]
        record.calls.clear()
        seen = await settle(balancers, wish("n1", "n2"))
        assert record.names == ["ensure"]
        assert balancers.changes(wish("n1", "n2"), seen) == ()


async def test_an_error_while_looking_at_one_is_told_for_that_one_alone():
    async with leading(get=OSError("down")) as (balancers, _, view):
        view.known_services["s2"] = kube_service("s2")
        new = replace(wish("n1"), owner=type(OWNER)("blue-uid", "s2"))

        seen = await balancers.observe([GONE, new], deep=True)

        assert isinstance(seen[OWNER], Failure)
        assert str(seen[OWNER].error) == "down"
        assert not isinstance(seen[new.owner], Failure)


async def test_members_out_of_view_are_not_passed_on():
    async with leading() as (balancers, record, _):
        await settle(balancers, wish("n1", "n9"))

        assert record.calls[0][3] == ["n1"]


async def test_the_ingress_says_who_ends_connections():
    ingress = (
        LoadBalancerIngress(hostname="lb.example"),
        LoadBalancerIngress(ip="1.2.3.4", ip_mode="Proxy"),
    )
    async with leading(ensure=LoadBalancerStatus(ingress=ingress)) as (balancers, _, _view):
        seen = await settle(balancers, wish("n1"))

        assert seen.balancer.ingress == (
            Ingress(hostname="lb.example"),
            Ingress(ip="1.2.3.4", proxied=True),
        )


RELEVANT = st.fixed_dictionaries(
    {},
    optional={
        "load_balancer_source_ranges": st.sampled_from([("10.0.0.0/8",), ("0.0.0.0/0",)]),
        "session_affinity": st.sampled_from(["None", "ClientIP"]),
        "session_affinity_config": st.just(
            SessionAffinityConfig(client_ip=ClientIpConfig(timeout_seconds=5))
        ),
        "load_balancer_ip": st.sampled_from(["192.0.2.1"]),
        "external_ips": st.sampled_from([("192.0.2.1",), ("192.0.2.2", "192.0.2.1")]),
        "external_traffic_policy": st.sampled_from(["Local", "Cluster"]),
        "health_check_node_port": st.just(31000),
        "ip_families": st.sampled_from([("IPv4",), ("IPv4", "IPv6")]),
    },
)


@given(RELEVANT, RELEVANT)
def test_a_service_needs_ensuring_when_a_relevant_field_differs(before, after):
    assert needs_ensure(kube_service(**before), kube_service(**after)) is (before != after)


def test_fields_that_go_ignores_need_no_ensuring():
    before = kube_service(ip_families=("IPv4",), cluster_ips=("10.0.0.1",))
    after = kube_service(ip_families=("IPv6",), cluster_ips=("10.0.0.2",))

    assert not needs_ensure(before, after)


def test_the_order_of_ports_counts():
    first, second = ServicePort(name="a", port=1), ServicePort(name="b", port=2)

    def service(*ports: ServicePort):
        return type(kube_service())(spec=type(kube_service().spec)(ports=ports))  # type: ignore[misc]

    assert needs_ensure(service(first, second), service(second, first))
