"""The bed itself: what the other tests rely on is really so."""

import pytest

from tests.openstack.cloud import Project, Refused, differences, eventually, is_absent


def test_servers_are_in_three_zones_and_have_addresses(furnished: Project) -> None:
    servers = furnished.cloud.listed("servers")
    assert sorted(each["OS-EXT-AZ:availability_zone"] for each in servers) == ["az1", "az2", "az3"]
    assert all(furnished.address(name).startswith("10.7.") for name in furnished.servers)


def test_a_balancer_becomes_active_and_a_member_that_fails_degrades_it(furnished: Project) -> None:
    cloud = furnished.cloud
    before = cloud.objects()
    balancer = cloud.create(
        "balancer", "/v2/lbaas/loadbalancers", "loadbalancer", **_balancer(furnished)
    )["id"]
    path = f"/v2/lbaas/loadbalancers/{balancer}"

    def status() -> tuple[str, str]:
        seen = cloud.get("balancer", path)["loadbalancer"]
        return seen["provisioning_status"], seen["operating_status"]

    eventually("active and online", lambda: status() == ("ACTIVE", "ONLINE"))
    furnished.bed.down_members.write_text(furnished.address("node-1"))
    try:
        eventually("degraded", lambda: status() == ("ACTIVE", "DEGRADED"))
    finally:
        furnished.bed.down_members.unlink()
    cloud.send("DELETE", "balancer", f"{path}?cascade=true")
    eventually("deleted", lambda: is_absent(cloud, "balancer", balancer))
    assert list(differences(before, cloud.objects())) == []


def test_requests_are_logged_by_project(furnished: Project) -> None:
    furnished.cloud.listed("servers")
    logged = list(furnished.bed.requests(furnished.cloud.project, ["nova"]))
    assert logged[-1]["method"] == "GET"
    assert logged[-1]["path"].endswith("/servers/detail")
    assert {each["project"] for each in logged} == {furnished.cloud.project}


def test_a_user_without_the_role_is_refused_by_octavia(bed, empty: Project) -> None:
    member = {each["name"]: each["id"] for each in empty.admin.get("identity", "/roles")["roles"]}
    role = f"/roles/{member['load-balancer_member']}"
    path = f"/projects/{empty.cloud.project}/users/{empty.cloud.user_id}{role}"
    empty.admin.send("DELETE", "identity", path)
    renewed = type(empty.cloud)(bed, empty.cloud.user, empty.cloud.project_name)
    with pytest.raises(Refused, match="403"):
        renewed.get("balancer", "/v2/lbaas/loadbalancers")


def _balancer(project: Project) -> dict[str, object]:
    members = [
        {"address": project.address(name), "protocol_port": 31000, "name": name}
        for name in project.servers
    ]
    monitor = {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "name": "monitor"}
    pool = {
        "name": "pool",
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "members": members,
        "healthmonitor": monitor,
    }
    listener = {"name": "listener", "protocol": "TCP", "protocol_port": 80, "default_pool": pool}
    return {"name": "balancer", "vip_subnet_id": project.subnet, "listeners": [listener]}
