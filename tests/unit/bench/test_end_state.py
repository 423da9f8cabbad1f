"""End states are compared object by object, without what differs between any two runs."""

from typing import Any

from tools.bench.end_state import differences, state_of

NAMES = ("Go", "Pileus")


def node(name: str = "n1", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": "u1", "resourceVersion": "7", "managedFields": [1]},
        "spec": {"providerID": "bench://i-1", **more},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "x"}]},
    }


def service(uid: str = "s1") -> dict[str, Any]:
    return {
        "metadata": {"name": "shop", "uid": uid, "finalizers": ["b", "a"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.18.0.1", "ipMode": "VIP"}]}},
    }


def cloud(*members: str, uid: str = "s1", ip: str = "198.18.0.1") -> dict[str, Any]:
    return {
        "balancers": {uid: {"uid": uid, "ip": ip, "members": list(members), "specTag": "t"}},
        "routes": {"10.0.0.0/24": {"destination": "10.0.0.0/24", "target": "n1", "cluster": "c"}},
    }


def test_equal_states_have_no_differences():
    one = state_of([node()], [service()], cloud("n1", "n2"))
    other = state_of([node()], [service()], cloud("n2", "n1"))
    assert one["balancer/shop.members"] == "n1,n2"
    assert one["route/10.0.0.0/24.target"] == "n1"
    assert differences(one, other, NAMES) == []


def test_identities_times_and_given_out_addresses_do_not_count():
    one = state_of([node()], [service("s1")], cloud("n1", uid="s1", ip="198.18.0.1"))
    changed = node()
    changed["metadata"]["uid"] = "u2"
    changed["status"]["conditions"][0]["lastHeartbeatTime"] = "y"
    other = state_of([changed], [service("s2")], cloud("n1", uid="s2", ip="198.18.0.9"))
    assert differences(one, other, NAMES) == []


def test_the_order_of_conditions_and_taints_does_not_count():
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    one = state_of([node(taints=taints)], [], {"balancers": {}, "routes": {}})
    other = state_of([node(taints=taints[::-1])], [], {"balancers": {}, "routes": {}})
    assert differences(one, other, NAMES) == []


def test_differences_are_counted_by_kind_and_what_is_lacking_comes_first():
    none: dict[str, Any] = {"balancers": {}, "routes": {}}
    go = state_of([node("n1", a="1"), node("n2", a="1")], [], none)
    pileus = state_of([node("n1", b="1", providerID="x"), node("n2", b="1")], [], none)
    assert differences(go, pileus, NAMES) == [
        "2 x node.spec.a: only Go has it, as 1",
        "1 x node.spec.providerID: Go bench://i-1, Pileus x",
        "2 x node.spec.b: only Pileus has it, as 1",
    ]


def test_a_member_or_a_balancer_that_is_missing_is_seen():
    go = state_of([], [service()], cloud("n1", "n2"))
    fewer = state_of([], [service()], cloud("n1"))
    assert differences(go, fewer, NAMES) == ["1 x balancer.members: Go n1,n2, Pileus n1"]
    none = state_of([], [service()], {"balancers": {}, "routes": {}})
    lines = differences(go, none, NAMES)
    assert "1 x balancer.members: only Go has it, as n1,n2" in lines
    assert "1 x route.target: only Go has it, as n1" in lines
