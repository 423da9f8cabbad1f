"""What `pileus doctor` finds in an OpenStack project. The answers are those of real services."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.cloud.errors import NotFound, Unauthorized, Unavailable
from pileus.fix import commands_in
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.checks import Account, findings

ACCOUNT = Account(project_id="p1", roles=("reader", "member"), ahead=0.4)


def neutron(**used: tuple[int, int]) -> dict[str, Any]:
    details = {name: {"used": use, "limit": limit} for name, (use, limit) in used.items()}
    return {"quota": {"network": {"limit": -1, "used": 3, "reserved": 0}, **details}}


@dataclass
class Answers:
    """A project without problems, until an answer is changed."""

    paths: dict[str, Any] = field(
        default_factory=lambda: {
            "/servers": {"servers": []},
            "/limits": {"limits": {"absolute": {"maxTotalInstances": 10, "totalInstancesUsed": 3}}},
            "/v2.0/networks": {"networks": []},
            "/v2.0/ports": {"ports": []},
            "/v2.0/quotas/p1/details.json": neutron(port=(10, 100), floatingip=(2, -1)),
            "/": {"versions": [{"id": "v2.26"}]},
            "/v2.0/lbaas/loadbalancers": {"loadbalancers": [{"id": "a"}, {"id": "b"}]},
            "/v2.0/lbaas/quotas/p1": {"quota": {"loadbalancer": 10}},
        }
    )
    calls: list[Call] = field(default_factory=list[Call])

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        answer = self.paths[call.path]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ids(answers: Answers, account: Account = ACCOUNT) -> list[str]:
    return [finding.id for finding in await findings(Client(answers), account)]


def vip_port(id_: str, balancer: str, project: str = "p1") -> dict[str, Any]:
    return {
        "id": id_,
        "name": f"octavia-lb-{balancer}",
        "device_id": f"lb-{balancer}",
        "device_owner": "Octavia",
        "network_id": "n1",
        "project_id": project,
        "created_at": "2026-01-01T00:00:00Z",
    }


async def test_ports_of_load_balancers_that_do_not_exist_are_reported() -> None:
    answers, gone, there = Answers(), "0" * 36, "1" * 36
    answers.paths["/v2.0/lbaas/loadbalancers"] = {"loadbalancers": [{"id": there}]}
    answers.paths[f"/v2.0/lbaas/loadbalancers/{gone}"] = NotFound("no such load balancer")
    answers.paths["/v2.0/ports"] = {
        "ports": [vip_port("left", gone), vip_port("used", there), vip_port("other", gone, "p2")]
    }

    (found,) = await findings(Client(answers), ACCOUNT)

    assert found.id == "vip-ports-left"
    assert found.fix.startswith("openstack port delete left   #")


async def test_the_fix_of_a_quota_names_the_project_and_a_limit() -> None:
    answers = Answers()
    answers.paths["/v2.0/quotas/p1/details.json"] = neutron(port=(95, 100))
    answers.paths["/v2.0/lbaas/quotas/p1"] = {"quota": {"loadbalancer": 2}}

    fixes = [each.fix for each in await findings(Client(answers), ACCOUNT)]

    assert [next(commands_in(fix)) for fix in fixes] == [
        "openstack quota set --ports 190 p1",
        "openstack loadbalancer quota set --loadbalancer 4 p1",
    ]


async def test_a_project_without_problems_has_no_findings_and_is_only_read() -> None:
    answers = Answers()

    assert await ids(answers) == []
    assert {call.method for call in answers.calls} == {"GET"}


@pytest.mark.parametrize(
    ("path", "answer", "found"),
    [
        ("/servers", Unauthorized("403 policy does not allow"), ["service-refuses"]),
        ("/servers", Unavailable("503"), ["service-unavailable"]),
        ("/v2.0/networks", Unavailable("down"), ["service-unavailable"]),
        ("/v2.0/lbaas/loadbalancers", Unauthorized("403"), ["service-refuses"]),
        (
            "/limits",
            {"limits": {"absolute": {"maxTotalInstances": 3, "totalInstancesUsed": 3}}},
            ["quota-used-up"],
        ),
        (
            "/v2.0/quotas/p1/details.json",
            neutron(port=(95, 100), floatingip=(5, 5), security_group_rule=(1, 100)),
            ["quota-nearly-used", "quota-used-up"],
        ),
        ("/v2.0/quotas/p1/details.json", NotFound("no such extension"), []),
        ("/v2.0/lbaas/quotas/p1", {"quota": {"loadbalancer": 2}}, ["quota-used-up"]),
        ("/v2.0/lbaas/quotas/p1", {"quota": {"loadbalancer": -1}}, []),
        ("/", {"versions": [{"id": "v2.0"}]}, ["octavia-too-old"]),
    ],
)
async def test_each_problem_is_one_finding(path: str, answer: object, found: list[str]) -> None:
    answers = Answers()
    answers.paths[path] = answer

    assert await ids(answers) == found


@pytest.mark.parametrize(
    ("account", "found"),
    [
        (replace(ACCOUNT, roles=("reader",)), ["role-missing"]),
        (replace(ACCOUNT, roles=()), []),
        (replace(ACCOUNT, roles=("load-balancer_member",)), []),
        (replace(ACCOUNT, ahead=-31.0), ["cloud-clock-skew"]),
        (replace(ACCOUNT, ahead=None), []),
        (
            replace(ACCOUNT, services=frozenset({Service.COMPUTE, Service.NETWORK})),
            ["service-missing"],
        ),
        (
            replace(
                ACCOUNT,
                services=frozenset({Service.COMPUTE, Service.NETWORK}),
                uses_balancers=False,
            ),
            [],
        ),
    ],
)
async def test_the_token_and_the_catalogue(account: Account, found: list[str]) -> None:
    assert await ids(Answers(), account) == found


async def test_every_problem_at_once_is_found() -> None:
    answers = Answers()
    answers.paths["/servers"] = Unavailable("down")
    answers.paths["/v2.0/lbaas/quotas/p1"] = {"quota": {"loadbalancer": 2}}
    answers.paths["/v2.0/quotas/p1/details.json"] = neutron(floatingip=(5, 5))
    account = replace(ACCOUNT, roles=("reader",), ahead=90.0)

    found = await findings(Client(answers), account)

    assert [finding.id for finding in found] == [
        "role-missing",
        "cloud-clock-skew",
        "service-unavailable",
        "quota-used-up",
        "quota-used-up",
    ]
    assert all(finding.what and finding.reason and finding.fix for finding in found)
