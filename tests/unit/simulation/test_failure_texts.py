"""What a failed seed says about a Service: what it asks for, and what its condition says."""

from pileus_lab.apiserver.tree import Obj
from pileus_lab.simulation.invariants.eventually import asked_and_told
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import draw
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


def test_a_planted_defect_is_reported_with_both():
    (defect,) = (one for one in DEFECTS if one.name == "source ranges are not passed on")

    with planted(defect):
        violation = play(draw(defect.at, SCENARIOS[defect.scenario])).violation

    assert violation is not None
    assert "it asks for: ports " in violation.text
    assert "its condition: True, LoadBalancerReady" in violation.text
