"""Credentials, tokens and errors of the provider on real services."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.openstack_bed.bed import PASSWORD, REGION, Bed

from pileus.cloud.connection import read_config
from pileus.cloud.errors import Conflict, Misconfigured, QuotaExceeded, Unauthorized, Unsupported
from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack.api import Client, Service
from pileus.providers.openstack.connect import connected_api
from pileus.providers.openstack.features import Features
from pileus.providers.openstack.session import FILE_CHECK
from tests.openstack.cloud import Project, eventually, project

pytestmark = pytest.mark.real_time

LISTS = {
    Service.COMPUTE: "/servers/detail",
    Service.NETWORK: "/v2.0/networks",
    Service.LOAD_BALANCER: "/v2.0/lbaas/loadbalancers",
    Service.BLOCK_STORAGE: "/volumes/detail",
}


def config(path: Path, **keys: str) -> ProviderConfig:
    lines = (f"{key.replace('_', '-')} = {value}" for key, value in keys.items())
    path.write_text("\n".join(["[Global]", *lines, ""]))
    return read_config(str(path))


def password(of: Project, **more: str) -> dict[str, str]:
    cloud = of.cloud
    return {
        "auth_url": of.bed.auth_url,
        "user_id": cloud.user_id,
        "password": PASSWORD,
        "tenant_id": cloud.project,
        **more,
    }


async def listed(given: ProviderConfig) -> dict[Service, Any]:
    """Returns a list of each service, read with these credentials."""
    async with connected_api(given) as (api, _):
        client = Client(api)
        return {service: await client.send("GET", service, path) for service, path in LISTS.items()}


async def test_a_password_opens_every_service(tmp_path, empty: Project):
    names = {
        "auth_url": empty.bed.auth_url.removesuffix("/v3"),
        "username": empty.cloud.user,
        "password": PASSWORD,
        "user_domain_name": "Default",
        "tenant_name": empty.cloud.project_name,
        "tenant_domain_id": "default",
        "region": REGION,
        "os_endpoint_type": "internal",
    }
    for given in (config(tmp_path / "a", **password(empty)), config(tmp_path / "b", **names)):
        assert (await listed(given)).keys() == LISTS.keys()


async def test_wrong_credentials_are_refused_with_the_request_id(tmp_path, empty: Project):
    given = config(tmp_path / "c", **password(empty, password="hunter2"))
    with pytest.raises(Unauthorized, match=r"Keystone refuses user .*\(request ID req-") as error:
        await listed(given)
    assert "hunter2" not in repr(error.value)


async def test_a_wrong_project_and_region_are_refused(tmp_path, empty: Project):
    with pytest.raises(Unauthorized, match="Keystone refuses"):
        await listed(config(tmp_path / "c", **password(empty, tenant_id="nope")))
    with pytest.raises(Misconfigured, match=f'did you mean "{REGION}"'):
        await listed(config(tmp_path / "c", **password(empty, region="RegionOn")))


async def test_a_token_that_services_refuse_is_renewed(tmp_path, empty: Project):
    async with connected_api(config(tmp_path / "c", **password(empty))) as (api, _):
        token = await api.session.token()
        api.session._token = replace(token, id="expired")
        for service, path in LISTS.items():
            assert await Client(api).send("GET", service, path) is not None
        assert (await api.session.token()).id not in {"expired", token.id}


async def test_a_token_of_the_configuration_is_used(tmp_path, empty: Project):
    keys = {"auth_url": empty.bed.auth_url, "token": empty.cloud.token}
    assert (await listed(config(tmp_path / "a", **keys))).keys() == LISTS.keys()
    scoped = config(tmp_path / "b", **keys, tenant_id=empty.cloud.project)
    assert (await listed(scoped)).keys() == LISTS.keys()


def application_credential(of: Project, name: str) -> dict[str, str]:
    path = f"/users/{of.cloud.user_id}/application_credentials"
    made = of.cloud.create("identity", path, "application_credential", name=name)
    return {
        "auth_url": of.bed.auth_url,
        "application_credential_id": made["id"],
        "application_credential_secret": made["secret"],
    }


async def test_an_application_credential_works_by_id_and_by_name(tmp_path, empty: Project):
    keys = application_credential(empty, "ccm")
    assert (await listed(config(tmp_path / "a", **keys))).keys() == LISTS.keys()
    del keys["application_credential_id"]
    by_name = {**keys, "application_credential_name": "ccm", "username": empty.cloud.user}
    given = config(tmp_path / "b", **by_name, user_domain_name="Default")
    assert (await listed(given)).keys() == LISTS.keys()


async def test_an_application_credential_is_rotated_without_a_restart(tmp_path, empty: Project):
    first, second = (application_credential(empty, name) for name in ("first", "second"))
    async with connected_api(config(tmp_path / "c", **first)) as (api, _):
        client = Client(api)
        await client.send("GET", Service.NETWORK, "/v2.0/networks")
        config(tmp_path / "c", **second)
        path = f"/users/{empty.cloud.user_id}/application_credentials/"
        empty.cloud.send("DELETE", "identity", path + first["application_credential_id"])
        api.session._check_at -= FILE_CHECK
        await client.send("GET", Service.COMPUTE, "/servers")
        assert api.session.auth.application_credential_id == second["application_credential_id"]


async def test_credentials_of_another_project_do_not_replace_those_in_use(
    tmp_path, bed: Bed, empty: Project
):
    with project(bed, f"{empty.cloud.project_name}-other") as other:
        async with connected_api(config(tmp_path / "c", **password(empty))) as (api, _):
            config(tmp_path / "c", **password(other))
            api.session._check_at -= FILE_CHECK
            await Client(api).send("GET", Service.COMPUTE, "/servers")
            assert (await api.session.token()).project_id == empty.cloud.project


async def test_a_trust_acts_for_its_trustor(tmp_path, bed: Bed, empty: Project):
    with project(bed, f"{empty.cloud.project_name}-trustee") as trustee:
        trust = empty.cloud.create(
            "identity",
            "/OS-TRUST/trusts",
            "trust",
            trustor_user_id=empty.cloud.user_id,
            trustee_user_id=trustee.cloud.user_id,
            project_id=empty.cloud.project,
            impersonation=True,
            roles=[{"name": "member"}, {"name": "load-balancer_member"}],
        )
        keys = {
            "auth_url": bed.auth_url,
            "trust_id": trust["id"],
            "trustee_id": trustee.cloud.user_id,
            "trustee_password": PASSWORD,
        }
        async with connected_api(config(tmp_path / "c", **keys)) as (api, _):
            assert (await api.session.token()).project_id == empty.cloud.project
        assert (await listed(config(tmp_path / "c", **keys))).keys() == LISTS.keys()


async def test_features_and_missing_services_are_known(tmp_path, empty: Project):
    async with connected_api(config(tmp_path / "c", **password(empty))) as (api, _):
        features = Features(Client(api))
        octavia, neutron = await features.octavia(), await features.neutron()
        assert octavia.has_tags
        assert octavia.has_additional_vips
        assert neutron.has_routes
        assert neutron.has_allowed_address_pairs
        with pytest.raises(Unsupported, match="no public endpoint of type key-manager"):
            await Client(api).send("GET", Service.KEY_MANAGER, "/v1/secrets")


async def test_a_user_without_the_role_reads_which_one_is_missing(tmp_path, bed: Bed):
    with project(bed, "test-no-balancer-role", roles=("member",)) as poor:
        async with connected_api(config(tmp_path / "c", **password(poor))) as (api, _):
            with pytest.raises(Unauthorized, match=r"403 .* Fix: .* load-balancer_member"):
                await Client(api).send("GET", Service.LOAD_BALANCER, LISTS[Service.LOAD_BALANCER])


async def test_quotas_and_busy_balancers_have_errors_of_their_own(tmp_path, furnished: Project):
    admin, owner = furnished.admin, furnished.cloud.project
    admin.send("PUT", "network", f"/v2.0/quotas/{owner}", {"quota": {"floatingip": 0}})
    admin.send("PUT", "balancer", f"/v2/lbaas/quotas/{owner}", {"quota": {"load_balancer": 1}})
    path = LISTS[Service.LOAD_BALANCER]
    body = {"loadbalancer": {"vip_subnet_id": furnished.subnet, "name": "a"}}
    async with connected_api(config(tmp_path / "c", **password(furnished))) as (api, _):
        client = Client(api)
        made = await client.send("POST", Service.LOAD_BALANCER, path, body)
        with pytest.raises(QuotaExceeded, match="403 Quota has been met"):
            await client.send("POST", Service.LOAD_BALANCER, path, body)
        with pytest.raises(Conflict, match=r"409 .*(immutable|Invalid state)"):
            await client.send(
                "PUT",
                Service.LOAD_BALANCER,
                f"{path}/{made['loadbalancer']['id']}",
                {"loadbalancer": {"name": "b"}},
            )
        with pytest.raises(QuotaExceeded, match="409 Quota exceeded for resources"):
            await client.send(
                "POST",
                Service.NETWORK,
                "/v2.0/floatingips",
                {"floatingip": {"floating_network_id": furnished.external}},
            )
    state = "provisioning_status"
    eventually("it is active", lambda: furnished.balancers()[0][state] == "ACTIVE")
