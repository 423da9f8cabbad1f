"""How nodes are found among servers, and when they are not: a stand-in for Nova with its faults.

Conformance laws and the number of requests are in `test_machines_on_the_model.py`.
"""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from pileus.cloud.errors import (
    CloudError,
    Misconfigured,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus.cloud.model import Absent, Failure, Found, Instance, InstanceState, NodeName, NodeRef
from pileus.cloud.permission import permitted_by
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.config import Auth, Networking, OpenStackConfig
from pileus.providers.openstack.instances import STATES, OpenStackInstances, state_of
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.nova import Nova, Server
from pileus.providers.openstack.server_lookup import FEW

MANY = FEW + 1


def uuid(number: int) -> str:
    return str(UUID(int=number))


class StandIn:
    """Servers and ports as Nova and Neutron answer, with down cells and failing requests."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, Any]] = {}
        self.ports: list[dict[str, Any]] = []
        self.networks: list[dict[str, Any]] = []
        self.flavors = [{"id": "42", "name": "m1 large"}]
        self.is_cell_down = False
        self.finds_no_names = False
        """The database does not understand the pattern of a name."""
        self.hidden: set[str] = set()
        """Servers that no list has: soft-deleted ones, and those of other projects."""
        self.deleted: set[str] = set()
        """Servers that were deleted, and whose actions Nova still has."""
        self.fails: Callable[[Call], CloudError | None] = lambda _: None
        self.calls: list[Call] = []

    def add(self, number: int, name: str, **fields: Any) -> NodeRef:
        """Add a server. Returns its node, as it is when the manager has initialized it."""
        self.servers[uuid(number)] = {
            "id": uuid(number),
            "name": name,
            "status": "ACTIVE",
            "addresses": {"net": [{"addr": f"10.0.0.{number}", "OS-EXT-IPS:type": "fixed"}]},
            "flavor": {"original_name": "m1.small"},
            "OS-EXT-AZ:availability_zone": "nova",
            "OS-EXT-STS:power_state": 1,
            **fields,
        }
        return NodeRef(name=NodeName(name), provider_id=f"openstack:///{uuid(number)}")

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        error = self.fails(call)
        if error is not None:
            raise error
        if call.service is Service.NETWORK:
            return self._neutron(call)
        if call.path == "/flavors":
            return {"flavors": self.flavors}
        if call.path in {"/servers", "/servers/detail"}:
            return {"servers": self._listed(call)}
        if call.path.endswith("/os-instance-actions"):
            return self._actions(call.path.split("/")[2])
        server = self.servers.get(call.path.removeprefix("/servers/"))
        if server is None:
            raise NotFound("Instance could not be found")
        return {"server": _minimal(server) if self.is_cell_down else server}

    def _actions(self, server_id: str) -> dict[str, Any]:
        if server_id not in {*self.servers, *self.deleted}:
            raise NotFound("Instance could not be found")
        return {"instanceActions": [{"action": "create"}]}

    def _listed(self, call: Call) -> list[dict[str, Any]]:
        servers = [one for key, one in self.servers.items() if key not in self.hidden]
        query = dict(call.query)
        if self.is_cell_down:
            return [] if query else [_minimal(one) for one in servers]
        if "name" in query and self.finds_no_names:
            return []
        pattern = re.compile(query.get("name", ""), re.IGNORECASE)
        return [one for one in servers if pattern.search(one["name"])]

    def _neutron(self, call: Call) -> dict[str, Any]:
        collection = call.path.removeprefix("/v2.0/")
        asked = [(key, value) for key, value in call.query if key in {"id", "device_id"}]
        items = self.ports if collection == "ports" else self.networks
        return {collection: [one for one in items if any(one[k] == v for k, v in asked)]}


def _minimal(server: dict[str, Any]) -> dict[str, Any]:
    return {"id": server["id"], "status": "UNKNOWN"}


def instances(api: StandIn, **networking: Any) -> OpenStackInstances:
    config = OpenStackConfig(auth=Auth(region="RegionOne"), networking=Networking(**networking))
    client = Client(api)
    return OpenStackInstances.of(Nova(client), Neutron(client), config)


async def find(api: StandIn, *nodes: NodeRef, **networking: Any) -> dict[str, Found]:
    found = await instances(api, **networking).find(nodes, fresh=True)
    return {str(name): one for name, one in found.items()}


def uninitialized(node: NodeRef, system_uuid: str = "") -> NodeRef:
    return NodeRef(name=node.name, system_uuid=system_uuid)


def fillers(api: StandIn, count: int = MANY) -> list[NodeRef]:
    """Nodes that make a lookup one of many."""
    return [api.add(100 + number, f"filler-{number}") for number in range(count)]


def error_of(found: Found) -> CloudError:
    assert isinstance(found, Failure), f"found {found}"
    return found.error


async def test_a_node_gets_id_type_zone_region_addresses_and_state() -> None:
    api = StandIn()
    node = api.add(1, "n1", **{"OS-EXT-AZ:availability_zone": "zone (a)"})
    instance = (await find(api, uninitialized(node)))["n1"]
    assert isinstance(instance, Instance)
    assert instance.provider_id == f"openstack:///{uuid(1)}"
    assert (instance.type, instance.zone, instance.region) == ("m1.small", "zone-a", "RegionOne")
    assert [one.address for one in instance.addresses] == ["10.0.0.1"]
    assert instance.state is InstanceState.RUNNING


async def test_a_machine_is_known_by_every_provider_id_that_leads_to_it() -> None:
    api = StandIn()
    api.add(1, "n1")
    forms = (
        f"openstack:///{uuid(1)}",
        f"openstack://RegionOne/{uuid(1)}",
        f"/{uuid(1)}",
        uuid(1).upper(),
    )
    for form in forms:
        instance = (await find(api, NodeRef(name=NodeName("n1"), provider_id=form)))["n1"]
        assert isinstance(instance, Instance), form
        assert set(forms) <= instance.aliases


async def test_a_machine_has_the_names_of_its_server_and_of_its_metadata() -> None:
    api = StandIn()
    named = {"pileus.dev/node-name": "worker-1", "hostname": "w1.example", "other": "x"}
    nodes = [api.add(1, "n1"), api.add(2, "n2", metadata=named)]

    found = await find(api, *nodes)

    names = {name: each.names for name, each in found.items() if isinstance(each, Instance)}
    assert names == {"n1": {"n1"}, "n2": {"n2", "worker-1", "w1.example"}}


async def test_few_nodes_are_asked_for_one_by_one_and_many_by_list() -> None:
    api = StandIn()
    nodes = fillers(api, FEW)
    await find(api, *nodes)
    assert [call.path for call in api.calls if call.path == "/servers/detail"] == []
    api.calls.clear()
    await find(api, *nodes, api.add(1, "n1"))
    assert [call.path for call in api.calls] == ["/servers/detail", "/v2.0/ports"]


async def test_the_list_is_asked_for_without_parameters_so_that_nova_reports_down_cells() -> None:
    api = StandIn()
    await find(api, *fillers(api))
    (listed,) = [call for call in api.calls if call.path == "/servers/detail"]
    assert listed.query == ()
    assert listed.microversion == "2.69"


async def test_names_are_quoted_and_compared_exactly() -> None:
    api = StandIn()
    api.add(1, "nodeXexample")
    right = api.add(2, "node.example")
    found = (await find(api, uninitialized(right)))["node.example"]
    assert isinstance(found, Instance)
    assert found.id == uuid(2)
    assert ("name", r"^node\.example$") in api.calls[0].query


async def test_a_server_name_in_capitals_is_that_of_the_node_unless_another_matches_exactly() -> (
    None
):
    api = StandIn()
    node = uninitialized(NodeRef(name=NodeName("worker-1")))
    api.add(1, "Worker-1")
    found = (await find(api, node))["worker-1"]
    assert isinstance(found, Instance)
    assert found.id == uuid(1)
    api.add(2, "worker-1")
    found = (await find(api, node))["worker-1"]
    assert isinstance(found, Instance)
    assert found.id == uuid(2)


@pytest.mark.parametrize("others", [0, MANY])
async def test_two_servers_with_one_name_are_a_failure_that_names_both(others: int) -> None:
    api = StandIn()
    node = uninitialized(api.add(1, "twin"))
    api.add(2, "twin")
    found = await find(api, node, *fillers(api, others))
    error = error_of(found["twin"])
    assert isinstance(error, Rejected)
    assert uuid(1) in str(error)
    assert uuid(2) in str(error)


@pytest.mark.parametrize("others", [0, MANY])
async def test_fault_7_a_node_without_provider_id_whose_server_is_gone_is_absent(
    others: int,
) -> None:
    api = StandIn()
    gone = uninitialized(NodeRef(name=NodeName("gone")), system_uuid=uuid(77))
    found = await find(api, gone, *fillers(api, others))
    answer = found["gone"]
    assert isinstance(answer, Absent)
    assert '"gone"' in answer.evidence


@pytest.mark.parametrize("others", [0, MANY])
async def test_a_deleted_server_is_absent_because_nova_answers_404_to_its_id(others: int) -> None:
    api = StandIn()
    gone = api.add(1, "gone")
    del api.servers[uuid(1)]
    answer = (await find(api, gone, *fillers(api, others)))["gone"]
    assert isinstance(answer, Absent)
    assert uuid(1) in answer.evidence
    assert f"/servers/{uuid(1)}" in {call.path for call in api.calls}


async def test_a_server_that_no_list_has_is_not_absent() -> None:
    """Soft-deleted servers and, for administrators, those of other projects."""
    api = StandIn()
    node = api.add(1, "n1", status="SOFT_DELETED", **{"OS-EXT-STS:power_state": 4})
    api.hidden.add(uuid(1))
    nodes = fillers(api)
    found = await find(api, node, *nodes)
    assert isinstance(found["n1"], Instance)
    assert found["n1"].state is InstanceState.STOPPED
    by_name = await find(api, uninitialized(node, system_uuid=uuid(1).upper()), *nodes)
    assert isinstance(by_name["n1"], Instance)


@pytest.mark.parametrize("others", [0, MANY])
async def test_a_node_of_a_deleted_server_does_not_get_the_server_that_has_its_name_now(
    others: int,
) -> None:
    api = StandIn()
    api.deleted.add(uuid(1))
    node = uninitialized(api.add(2, "n1"), system_uuid=uuid(1))
    answer = (await find(api, node, *fillers(api, others)))["n1"]
    assert isinstance(answer, Absent)
    assert uuid(1) in answer.evidence


async def test_a_uuid_that_the_hypervisor_chose_does_not_prevent_initialization() -> None:
    api = StandIn()
    node = uninitialized(api.add(1, "n1"), system_uuid=uuid(77))
    answer = (await find(api, node))["n1"]
    assert isinstance(answer, Instance)
    assert answer.id == uuid(1)


async def test_a_role_that_may_not_see_deleted_servers_is_told_which_policy_it_needs() -> None:
    api = StandIn()
    node = uninitialized(api.add(1, "n1"), system_uuid=uuid(77))

    def refused(call: Call) -> CloudError | None:
        return Unauthorized("403") if call.path.endswith("/os-instance-actions") else None

    api.fails = refused
    error = error_of((await find(api, node))["n1"])
    assert isinstance(error, Unauthorized)
    assert "os_compute_api:os-instance-actions:list" in str(error)


async def test_a_node_whose_uuid_is_the_id_of_its_server_costs_no_further_request() -> None:
    api = StandIn()
    node = uninitialized(api.add(1, "n1"), system_uuid=uuid(1).upper())
    assert isinstance((await find(api, node))["n1"], Instance)
    assert [call.path for call in api.calls] == ["/servers/detail", "/v2.0/ports"]


async def test_a_server_that_took_the_name_of_another_is_a_failure_that_names_both() -> None:
    api = StandIn()
    api.add(1, "renamed")
    node = uninitialized(api.add(2, "n1"), system_uuid=uuid(1))
    error = error_of((await find(api, node))["n1"])
    assert isinstance(error, Rejected)
    assert uuid(1) in str(error)
    assert uuid(2) in str(error)


async def test_nothing_is_concluded_while_nova_does_not_say_whether_it_had_a_server() -> None:
    api = StandIn()
    node = uninitialized(api.add(2, "n1"), system_uuid=uuid(1))
    api.fails = lambda call: Unavailable("busy") if "actions" in call.path else None
    assert isinstance(error_of((await find(api, node))["n1"]), Unavailable)


async def test_a_renamed_server_is_a_failure_and_not_absent() -> None:
    api = StandIn()
    api.add(1, "new-name")
    node = NodeRef(name=NodeName("old-name"), system_uuid=uuid(1))
    error = error_of((await find(api, node))["old-name"])
    assert isinstance(error, Rejected)
    assert "openstack server set --name old-name" in str(error)


@pytest.mark.parametrize("others", [0, MANY])
async def test_a_cell_that_does_not_respond_is_never_absence(others: int) -> None:
    api = StandIn()
    node = api.add(1, "n1")
    nodes = fillers(api, others)
    api.is_cell_down = True
    for asked in (node, uninitialized(node)):
        error = error_of((await find(api, asked, *nodes))["n1"])
        assert isinstance(error, Unavailable)
        assert "cell" in str(error)


async def test_a_search_by_name_that_finds_nothing_is_not_believed() -> None:
    api = StandIn()
    node = uninitialized(api.add(1, "n1"))
    api.finds_no_names = True
    assert isinstance(error_of((await find(api, node))["n1"]), Unavailable)


async def test_a_deleted_status_is_absent() -> None:
    api = StandIn()
    node = api.add(1, "n1", status="DELETED")
    assert isinstance((await find(api, node))["n1"], Absent)
    assert isinstance((await find(api, uninitialized(node)))["n1"], Absent)


async def test_a_node_of_another_region_or_cloud_fails_alone_and_without_a_request() -> None:
    api = StandIn()
    good = api.add(1, "n1")
    foreign = NodeRef(name=NodeName("n2"), provider_id=f"openstack://RegionTwo/{uuid(2)}")
    other = NodeRef(name=NodeName("n3"), provider_id="aws:///a/i-1")
    found = await find(api, good, foreign, other)
    assert isinstance(found["n1"], Instance)
    assert "RegionTwo" in str(error_of(found["n2"]))
    assert isinstance(error_of(found["n3"]), Rejected)
    assert {call.path for call in api.calls} == {f"/servers/{uuid(1)}", "/v2.0/ports"}


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (Unavailable("503"), []),
        (Unavailable("connection was cut"), []),
        (Unauthorized("403"), []),
        (Throttled("429", retry_after=7), [7]),
        (Throttled("429"), []),
    ],
)
async def test_a_failing_request_for_one_server_fails_that_node_alone(
    error: CloudError, pause: list[float]
) -> None:
    api = StandIn()
    good, bad = api.add(1, "good"), api.add(2, "bad")
    api.fails = lambda call: error if uuid(2) in call.path else None
    pauses: list[float] = []
    with permitted_by(lambda: None, pauses.append):
        found = await find(api, good, bad)
    assert isinstance(found["good"], Instance)
    assert error_of(found["bad"]) is error
    assert pauses == pause


async def test_a_failing_lookup_by_name_does_not_affect_nodes_with_a_provider_id() -> None:
    api = StandIn()
    good, new = api.add(1, "good"), uninitialized(api.add(2, "new"))
    api.fails = lambda call: Unavailable("502") if call.path == "/servers/detail" else None
    found = await find(api, good, new)
    assert isinstance(found["good"], Instance)
    assert isinstance(error_of(found["new"]), Unavailable)


async def test_a_failing_second_list_is_never_absence() -> None:
    api = StandIn()
    gone = NodeRef(name=NodeName("gone"))
    api.fails = lambda call: Unavailable("502") if call.path == "/servers" else None
    assert isinstance(error_of((await find(api, gone))["gone"]), Unavailable)


@pytest.mark.parametrize("path", ["/servers/detail", "/v2.0/ports"])
async def test_a_failing_list_fails_the_whole_lookup(path: str) -> None:
    api = StandIn()
    nodes = fillers(api)
    api.fails = lambda call: Unavailable("502") if call.path == path else None
    with pytest.raises(Unavailable):
        await find(api, *nodes)


async def test_a_misconfigured_network_fails_only_the_nodes_that_are_not_in_it() -> None:
    api = StandIn()
    right = api.add(1, "right")
    wrong = api.add(2, "wrong", addresses={"other": [{"addr": "10.1.0.1"}]})
    found = await find(api, right, wrong, internal_network_name=("net",))
    assert isinstance(found["right"], Instance)
    assert isinstance(error_of(found["wrong"]), Misconfigured)


async def test_a_server_in_error_without_ports_and_addresses_exists() -> None:
    api = StandIn()
    node = api.add(1, "n1", status="ERROR", addresses={}, fault={"message": "no valid host"})
    instance = (await find(api, node))["n1"]
    assert isinstance(instance, Instance)
    assert (instance.addresses, instance.state) == ((), InstanceState.UNKNOWN)


async def test_sub_ports_of_trunks_are_read_in_bulk_and_deleted_ones_are_skipped() -> None:
    api = StandIn()
    nodes = [api.add(number, f"n{number}") for number in (1, 2)]
    for number in (1, 2):
        subs = [{"port_id": f"sub-{number}"}, {"port_id": f"deleted-{number}"}]
        api.ports.append({
            "id": f"parent-{number}",
            "device_id": uuid(number),
            "network_id": "net",
            "status": "ACTIVE",
            "trunk_details": {"trunk_id": "t", "sub_ports": subs},
        })
        fixed = [{"subnet_id": "s", "ip_address": f"10.7.0.{number}"}]
        api.ports.append({
            "id": f"sub-{number}",
            "device_id": "",
            "network_id": "vlan-id",
            "fixed_ips": fixed,
        })
    api.networks.append({"id": "vlan-id", "name": "vlan"})
    found = await find(api, *nodes, public_network_name=("vlan",))
    for number in (1, 2):
        instance = found[f"n{number}"]
        assert isinstance(instance, Instance)
        assert [(one.type, one.address) for one in instance.addresses] == [
            ("InternalIP", f"10.0.0.{number}"),
            ("ExternalIP", f"10.7.0.{number}"),
        ]
    of_neutron = [call for call in api.calls if call.service is Service.NETWORK]
    assert len(of_neutron) == 3, "ports, sub-ports and networks are one request each"


async def test_a_flavor_whose_name_is_no_label_is_named_by_its_id() -> None:
    api = StandIn()
    spaced = api.add(1, "n1", flavor={"original_name": "m1 large"})
    deleted = api.add(2, "n2", flavor={"original_name": "old (tiny)"})
    found = await find(api, spaced, deleted)
    types = {name: one.type for name, one in found.items() if isinstance(one, Instance)}
    assert types == {"n1": "42", "n2": "old-tiny"}


@pytest.mark.parametrize(("status", "state"), STATES.items())
def test_states_follow_the_status_of_a_server(status: str, state: InstanceState) -> None:
    power = {InstanceState.RUNNING: 1, InstanceState.STOPPED: 4}.get(state, 0)
    assert state_of(Server(id="s", name="n", status=status, power_state=power)) is state


@pytest.mark.parametrize(
    ("status", "power", "task", "state"),
    [
        ("SHUTOFF", 4, "powering-on", InstanceState.PENDING),
        ("SHUTOFF", 1, None, InstanceState.UNKNOWN),
        ("SHUTOFF", 0, None, InstanceState.STOPPED),
        ("ACTIVE", 4, None, InstanceState.UNKNOWN),
        ("ACTIVE", 1, "powering-off", InstanceState.RUNNING),
        ("ACTIVE", 0, None, InstanceState.RUNNING),
        ("VERIFY_RESIZE", 4, None, InstanceState.UNKNOWN),
        ("A_NEW_STATUS", 1, None, InstanceState.UNKNOWN),
    ],
)
def test_power_and_task_correct_the_status(
    status: str, power: int, task: str | None, state: InstanceState
) -> None:
    server = Server(id="s", name="n", status=status, power_state=power, task_state=task)
    assert state_of(server) is state
