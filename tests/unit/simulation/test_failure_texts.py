"""What a failed seed says about a Service: what it asks for, and what its condition says."""

from types import SimpleNamespace
from typing import cast

import pytest

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import BalancerSpec, Listener, Owner
from pileus.cloud.interface import Cloud
from pileus_lab.apiserver.tree import Obj
from pileus_lab.simulation.clouds.second import INGRESS
from pileus_lab.simulation.clouds.truth import Balancer, Truth
from pileus_lab.simulation.environment.users import ADOPT, HOSTILE
from pileus_lab.simulation.invariants import eventually, untouched
from pileus_lab.simulation.invariants.facts import Facts, asked_and_told
from pileus_lab.simulation.invariants.service_history import FINALIZER
from pileus_lab.simulation.kinds import FaultKind
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import Spell, draw
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import planted


def test_a_failure_says_what_the_service_asks_for_and_the_message_of_its_condition():
    condition = {
        "type": "pileus.dev/Ready",
        "status": "False",
        "reason": "Unsupported",
        "message": "no IPv6 here",
    }
    spec = {
        "ports": [{"port": 80, "protocol": "TCP"}],
        "ipFamilies": ["IPv4", "IPv6"],
        "ipFamilyPolicy": "RequireDualStack",
        "sessionAffinity": "ClientIP",
    }
    service: Obj = {
        "metadata": {"name": "web", "annotations": {"pileus.dev/manage": "full"}},
        "spec": spec,
        "status": {"conditions": [condition]},
    }

    assert asked_and_told(service) == (
        "it asks for: ports 80/TCP; families IPv4, IPv6 RequireDualStack; affinity ClientIP; "
        "annotations pileus.dev/manage=full; its condition: False, Unsupported: no IPv6 here"
    )


SERVICE: Obj = {
    "metadata": {"name": "web", "uid": "u1", "finalizers": [FINALIZER]},
    "spec": {"ports": [{"port": 80, "protocol": "TCP"}], "type": "LoadBalancer"},
}


NAMING: Obj = {
    **SERVICE,
    "metadata": {
        "name": "web",
        "namespace": HOSTILE,
        "uid": "u1",
        "finalizers": [FINALIZER],
        "annotations": {ADOPT: "lb-1"},
    },
}
ACCOUNT = SimpleNamespace(truth=Truth, cloud=SimpleNamespace(gives_free_addresses=True))
SECOND_SPEC = BalancerSpec(
    listeners=frozenset({Listener(port=80, node_port=30080)}), members=frozenset()
)


def facts(service: Obj, *, wants: bool = True, impossible: bool = False, **more: object) -> Facts:
    """What the laws on Services ask of a world with this Service only."""
    found: dict[str, object] = {
        "cluster": SimpleNamespace(objects=lambda kind: [service] if kind == "services" else []),
        "runs": lambda _: True,
        "wants_balancer": lambda _: wants,
        "is_impossible": lambda _: impossible,
        "is_of_second": lambda _: False,
        "is_of_another_class": lambda _: False,
        "is_placeless": lambda: False,
        "keeps_members": lambda: False,
        "balancer_of": lambda _: None,
        "members": list,
        "machine_of": lambda _: None,
        "abilities": Abilities(),
        **more,
    }
    return cast("Facts", SimpleNamespace(**found))


@pytest.mark.parametrize(
    ("law", "world", "wrong"),
    [
        (eventually.services_have_what_they_want, facts(SERVICE), ": it has no balancer ("),
        (
            eventually.what_cannot_be_done_is_told,
            facts(SERVICE, impossible=True),
            " does not report its failure (",
        ),
        (
            eventually.services_keep_nothing_else,
            facts(SERVICE, wants=False),
            " still has the finalizer (",
        ),
        (
            untouched.users_reach_no_balancer_of_others,
            facts(NAMING, cluster_id="c", account=ACCOUNT),
            " has the finalizer, or publishes an address (",
        ),
        (
            eventually.the_second_cloud_serves_its_own,
            facts(
                SERVICE,
                is_of_second=lambda one: one is SERVICE,
                cluster_id="c",
                second=SimpleNamespace(balancers={Owner("c", "u1"): SECOND_SPEC}),
                keeps_members_of_second=lambda: False,
            ),
            f": it publishes [], not {[INGRESS]} (",
        ),
    ],
    ids=["what they want", "what cannot be done", "nothing else", "of others", "second cloud"],
)
def test_every_law_on_services_says_what_is_asked_for_and_told(
    law: eventually.Quiet, world: Facts, wrong: str
):
    (told,) = law(world)

    assert told.startswith(f"Service web{wrong}it asks for: ports 80/TCP; ")
    assert told.endswith("its condition: none)")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (FaultKind.CLOUD_AFTERWARDS, "perhaps a request that took effect late removed it"),
        (FaultKind.CLOUD_LATE, "perhaps a request that took effect late removed it"),
        (FaultKind.CLOUD_LOST, "nothing has written it again"),
        (None, "nothing has written it again"),
    ],
)
def test_a_late_request_is_only_blamed_where_one_was_possible(kind: FaultKind | None, why: str):
    spells = [
        Spell(number=1, at=1.0, until=2.0, kind=one, rate=1.0, seconds=1.0) for one in [kind] if one
    ]
    balancer = Balancer(
        id="lb-1",
        owner=Owner("c", "u1"),
        addresses=(),
        ports=frozenset(),
        members=frozenset(),
        is_noted=False,
    )
    world = facts(
        SERVICE,
        balancer_of=lambda _: balancer,
        schedule=SimpleNamespace(items=spells, setup=SimpleNamespace(repairs=True)),
        account=SimpleNamespace(offered=Cloud(name="acme")),
    )

    told = [*eventually.services_have_what_they_want(world)]

    assert [one.partition(" (it asks")[0] for one in told if "is_noted" in one] == [
        f"Service web: lb-1 has no note that it is complete (is_noted), and {why}"
    ]


def test_a_planted_defect_is_reported_with_both():
    (defect,) = (one for one in DEFECTS if one.name == "source ranges are not passed on")

    with planted(defect):
        violation = play(draw(defect.at, SCENARIOS[defect.scenario])).violation

    assert violation is not None
    assert "it asks for: ports " in violation.text
    assert "its condition: True, LoadBalancerReady" in violation.text
