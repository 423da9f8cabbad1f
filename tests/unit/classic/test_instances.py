"""What a ported provider is asked about nodes, in which order, and what is made of its answers."""

from typing import Any

import pytest

from pileus.classic.errors import (
    InstanceNotFound,
    Postponed,
    ProviderFailed,
    RetryError,
    Unimplemented,
)
from pileus.classic.instances import get_instance_provider_id
from pileus.cloud.errors import NotFound, Unavailable, Unsupported
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Failure,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
)
from tests.unit.classic.fakes import Access, Provider, Recorder, View, adapted, kube_node

V1 = frozenset({"v1", "zones"})
V2 = frozenset({"v2", "v1", "zones"})
ADDRESS = (Address(AddressType.INTERNAL_IP, "10.0.0.1"),)


async def found(provider: Provider, *names: str, fresh: bool, view: View | None = None) -> Any:
    view = view or View({"n1": kube_node("n1"), "n2": kube_node("n2", "fake://i-2")})
    cloud = adapted(provider)
    assert cloud.leading
    assert cloud.instances
    async with cloud.leading(Access(view)):
        provider.record.calls.clear()
        nodes = [NodeRef(name=NodeName(name)) for name in names]
        return await cloud.instances.find(nodes, fresh=fresh)


async def test_v2_metadata_is_one_call_and_v1_is_never_asked():
    provider = Provider(offers=V2)

    answer = await found(provider, "n1", fresh=False)

    assert provider.record.calls == [("instance_metadata", "n1")]
    assert answer["n1"] == Instance(
        id=InstanceId("i-1"),
        provider_id="fake://r/i-1",
        type="big",
        zone="r-a",
        region="r",
        addresses=ADDRESS,
        labels={"fake.example/rack": "7"},
        state=InstanceState.UNKNOWN,
    )


async def test_v2_metadata_of_none_leaves_the_node_unknown():
    assert await found(Provider(Recorder({"instance_metadata": None})), "n1", fresh=False) == {}


async def test_v2_metadata_without_provider_id_takes_the_nodes():
    from pileus.classic.interface import InstanceMetadata

    record = Recorder({"instance_metadata": InstanceMetadata()})
    answer = await found(Provider(record), "n1", "n2", fresh=False)

    assert answer["n2"].provider_id == "fake://i-2"
    assert "nor the node has a provider ID" in str(answer["n1"].error)


async def test_v1_metadata_is_asked_in_gos_order():
    provider = Provider(offers=V1)

    answer = await found(provider, "n1", fresh=False)

    assert provider.record.calls == [
        ("instance_id", "n1"),
        ("node_addresses_by_provider_id", "fake://i-n1"),
        ("instance_type_by_provider_id", "fake://i-n1"),
        ("get_zone_by_provider_id", "fake://i-n1"),
    ]
    assert (answer["n1"].zone, answer["n1"].region, answer["n1"].type) == ("r-a", "r", "small")


async def test_v1_does_not_compose_an_id_that_the_node_has():
    provider = Provider(offers=V1)

    await found(provider, "n2", fresh=False)

    assert provider.record.calls[0] == ("node_addresses_by_provider_id", "fake://i-2")


async def test_v1_falls_back_to_names_even_without_an_id():
    refused = Unimplemented()
    provider = Provider(
        Recorder({
            "instance_id": refused,
            "node_addresses_by_provider_id": KeyError("x"),
            "instance_type_by_provider_id": refused,
            "get_zone_by_provider_id": refused,
        }),
        offers=V1,
    )

    answer = await found(provider, "n1", fresh=False)

    assert provider.record.calls == [
        ("instance_id", "n1"),
        ("node_addresses_by_provider_id", ""),
        ("node_addresses", "n1"),
        ("instance_type_by_provider_id", ""),
        ("instance_type", "n1"),
        ("get_zone_by_provider_id", ""),
        ("get_zone_by_node_name", "n1"),
    ]
    assert (answer["n1"].provider_id, answer["n1"].zone) == ("", "r-b")


async def test_v1_without_zones_has_no_zone():
    answer = await found(Provider(offers=frozenset({"v1"})), "n1", fresh=False)

    assert (answer["n1"].zone, answer["n1"].region) == ("", "")


async def test_v1_failing_both_ways_tells_both_reasons():
    record = Recorder({
        "node_addresses_by_provider_id": KeyError("a"),
        "node_addresses": ValueError("b"),
    })

    answer = await found(Provider(record, offers=V1), "n1", fresh=False)

    assert str(answer["n1"].error) == "node addresses: by provider ID: 'a'; by name: b"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        pytest.param(InstanceNotFound(), NotFound, id="not found"),
        pytest.param(Unimplemented(), Unsupported, id="unimplemented"),
        pytest.param(RetryError("later", 12), Postponed, id="retry"),
        pytest.param(ZeroDivisionError("bug"), ProviderFailed, id="any other"),
    ],
)
async def test_the_failure_of_one_node_is_told_and_harms_no_other(raised, expected):
    class Picky(Recorder):
        def __call__(self, method: str, default: Any, *args: Any) -> Any:
            answer = super().__call__(method, default, *args)
            if args == ("n1",):
                raise raised
            return answer

    answer = await found(Provider(Picky()), "n1", "n2", fresh=False)

    assert isinstance(answer["n1"], Failure)
    assert type(answer["n1"].error) is expected
    assert isinstance(answer["n2"], Instance)


async def test_v1_not_found_while_composing_is_an_error_at_initialization():
    answer = await found(
        Provider(Recorder({"instance_id": InstanceNotFound()}), offers=V1), "n1", fresh=False
    )

    assert isinstance(answer["n1"].error, NotFound)


async def test_a_fresh_look_asks_v2_for_existence_then_for_the_state():
    provider = Provider(Recorder({"instance_shutdown": True}), offers=V2)

    answer = await found(provider, "n2", fresh=True)

    assert provider.record.names == ["instance_exists", "instance_shutdown"]
    assert answer["n2"].state is InstanceState.STOPPED
    assert answer["n2"].provider_id == "fake://i-2"


async def test_a_machine_that_does_not_exist_is_absent_and_not_asked_for_its_state():
    provider = Provider(Recorder({"instance_exists": False}))

    answer = await found(provider, "n1", fresh=True)

    assert answer == {"n1": Absent("instance_exists(n1) returned False")}
    assert provider.record.names == ["instance_exists"]


@pytest.mark.parametrize("answer", [None, 0, "", InstanceNotFound(), Unimplemented(), KeyError()])
async def test_only_a_plain_no_means_absent(answer):
    found_nodes = await found(Provider(Recorder({"instance_exists": answer})), "n1", fresh=True)

    assert isinstance(found_nodes["n1"], Failure)


async def test_v2_that_cannot_tell_the_state_leaves_the_node_unknown():
    answer = await found(
        Provider(Recorder({"instance_shutdown": Unimplemented()})), "n1", fresh=True
    )

    assert isinstance(answer["n1"], Failure)


async def test_v1_that_cannot_tell_the_state_means_running():
    provider = Provider(Recorder({"instance_shutdown_by_provider_id": Unimplemented()}), offers=V1)

    answer = await found(provider, "n1", fresh=True)

    assert provider.record.names == [
        "instance_id",
        "instance_exists_by_provider_id",
        "instance_shutdown_by_provider_id",
    ]
    assert answer["n1"].state is InstanceState.RUNNING


async def test_v1_not_found_while_composing_means_absent_for_a_fresh_look():
    answer = await found(
        Provider(Recorder({"instance_id": InstanceNotFound()}), offers=V1), "n1", fresh=True
    )

    assert answer == {"n1": Absent("instance_id(n1) raised: instance not found")}


@pytest.mark.parametrize(
    "answers",
    [
        {"instance_id": Unimplemented()},
        {"instance_id": KeyError("x")},
        {"instance_exists_by_provider_id": InstanceNotFound()},
    ],
)
async def test_any_other_error_of_v1_leaves_the_node_unknown(answers):
    answer = await found(Provider(Recorder(answers), offers=V1), "n1", fresh=True)

    assert isinstance(answer["n1"], Failure)


async def test_v1_that_says_no_means_absent():
    record = Recorder({"instance_exists_by_provider_id": False})

    answer = await found(Provider(record, offers=V1), "n2", fresh=True)

    assert answer == {"n2": Absent("instance_exists_by_provider_id(fake://i-2) returned False")}


async def test_a_node_no_longer_in_view_is_left_out_and_not_asked_for():
    provider = Provider()

    assert await found(provider, "n9", fresh=True) == {}
    assert provider.record.calls == []


async def test_without_leadership_nothing_is_in_view():
    cloud = adapted(Provider())
    assert cloud.instances

    with pytest.raises(Unavailable, match="is not the leader"):
        await cloud.instances.find([NodeRef(name=NodeName("n1"))], fresh=True)


async def test_composing_an_id_prefixes_what_is_no_sentinel():
    assert await get_instance_provider_id(Provider(offers=V1), "n1") == "fake://i-n1"
    with pytest.raises(Unavailable, match="failed to get instance ID from cloud provider: boom"):
        await get_instance_provider_id(
            Provider(Recorder({"instance_id": OSError("boom")}), offers=V1), "n1"
        )
    with pytest.raises(InstanceNotFound, match="^instance not found$"):
        await get_instance_provider_id(
            Provider(Recorder({"instance_id": InstanceNotFound()}), offers=V1), "n1"
        )


EXISTS, SHUTDOWN, METADATA = "instance_exists", "instance_shutdown", "instance_metadata"
OK, ERROR, MISSING, LACKING = "success", "error", "instance_not_found", "not_implemented"


@pytest.mark.parametrize(
    ("offers", "node", "answers", "asked"),
    [
        (V2, "n1", {}, ((EXISTS, OK), (SHUTDOWN, OK))),
        (V2, "n1", {EXISTS: False}, ((EXISTS, MISSING),)),
        (V2, "n1", {EXISTS: InstanceNotFound()}, ((EXISTS, MISSING),)),
        (V2, "n1", {EXISTS: Unimplemented()}, ((EXISTS, LACKING),)),
        (V2, "n1", {EXISTS: OSError()}, ((EXISTS, ERROR),)),
        (V2, "n1", {SHUTDOWN: OSError()}, ((EXISTS, OK), (SHUTDOWN, ERROR))),
        (V2, "n1", {SHUTDOWN: Unimplemented()}, ((EXISTS, OK), (SHUTDOWN, LACKING))),
        (V1, "n1", {}, ((METADATA, OK), (EXISTS, OK), (SHUTDOWN, OK))),
        (V1, "n2", {}, ((EXISTS, OK), (SHUTDOWN, OK))),
        (V1, "n1", {"instance_id": InstanceNotFound()}, ((METADATA, MISSING),)),
        (V1, "n1", {"instance_id": OSError()}, ((METADATA, ERROR),)),
        (V1, "n2", {f"{EXISTS}_by_provider_id": False}, ((EXISTS, MISSING),)),
        (
            V1,
            "n2",
            {f"{SHUTDOWN}_by_provider_id": Unimplemented()},
            ((EXISTS, OK), (SHUTDOWN, LACKING)),
        ),
    ],
)
async def test_calls_for_the_lifecycle_are_counted_as_in_go(
    offers: frozenset[str], node: str, answers: dict[str, Any], asked: tuple[Any, ...]
):
    answer = (await found(Provider(Recorder(answers), offers), node, fresh=True))[node]

    assert (answer.error if isinstance(answer, Failure) else answer).asked == asked
