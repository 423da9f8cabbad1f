"""The judge excuses a balancer that was kept on purpose, and only until it is managed again."""

import pytest

from pileus_lab.apiserver.tree import Obj
from pileus_lab.simulation.environment.steps import ObjectStep
from pileus_lab.simulation.environment.users import MANAGE
from pileus_lab.simulation.invariants.service_history import FINALIZER, ServiceHistory

UID = "a-uid"


def a_service(manage: str = "", *, finalizer: bool = False) -> Obj:
    annotations = {MANAGE: manage} if manage else {}
    finalizers = [FINALIZER] if finalizer else []
    return {"metadata": {"uid": UID, "annotations": annotations, "finalizers": finalizers}}


def released(manage: str) -> ServiceHistory:
    """Returns the history of a Service whose finalizer a manager removed in that mode."""
    history = ServiceHistory()
    before, after = a_service(manage, finalizer=True), a_service(manage)
    step = ObjectStep("manager-1", "services", before, after)
    history.learn(step, after, 1.0, wants=True, leader="manager-1-1")
    return history


def is_kept_after(history: ServiceHistory, service: Obj, *, wants: bool) -> bool:
    step = ObjectStep("people", "services", a_service(), service)
    history.learn(step, service, 2.0, wants=wants, leader="manager-1-1")
    return UID in history.kept_on_purpose


@pytest.mark.parametrize("manage", ["none", "observe"])
def test_a_balancer_stays_kept_while_the_service_wants_it_unmanaged(manage: str):
    history = released(manage)

    assert is_kept_after(history, a_service(manage), wants=True)
    assert is_kept_after(history, a_service(manage), wants=False)
    assert is_kept_after(history, a_service(), wants=False)


@pytest.mark.parametrize("manage", ["", "full"])
def test_a_balancer_is_no_longer_kept_once_the_service_wants_it_managed(manage: str):
    assert not is_kept_after(released("observe"), a_service(manage), wants=True)


@pytest.mark.parametrize("wants", [True, False])
def test_a_balancer_is_no_longer_kept_once_the_service_has_the_finalizer(wants: bool):
    assert not is_kept_after(released("none"), a_service("members", finalizer=True), wants=wants)


def test_a_balancer_is_not_kept_if_the_service_was_released_in_full():
    assert not is_kept_after(released("full"), a_service("observe"), wants=True)
