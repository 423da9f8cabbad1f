"""The checks of `pileus doctor` on real OpenStack services."""

from pathlib import Path

import pytest
from tools.openstack_bed.bed import PASSWORD, Bed

from pileus.cloud.connection import read_config
from pileus.cloud.finding import Finding
from pileus.providers.openstack.connect import connect
from tests.openstack.cloud import Cloud, Project

pytestmark = pytest.mark.real_time


async def checked(path: Path, of: Project) -> dict[str, Finding]:
    keys = {
        "auth-url": of.bed.auth_url,
        "user-id": of.cloud.user_id,
        "password": PASSWORD,
        "tenant-id": of.cloud.project,
    }
    path.write_text("\n".join(["[Global]", *(f"{key} = {keys[key]}" for key in keys), ""]))
    async with connect(read_config(str(path))) as cloud:
        assert cloud.checks is not None
        return {each.id: each for each in await cloud.checks()}


def limit(bed: Bed, of: Project, service: str, path: str, **limits: int) -> None:
    """Set quotas as the administrator."""
    Cloud(bed, "admin", "admin").send(
        "PUT", service, f"{path}/{of.cloud.project}", {"quota": limits}
    )


async def test_an_empty_project_has_no_findings(tmp_path: Path, empty: Project) -> None:
    assert await checked(tmp_path / "cloud.conf", empty) == {}


async def test_a_quota_that_is_used_up_is_found(tmp_path: Path, bed: Bed, empty: Project) -> None:
    empty.add_network()
    limit(bed, empty, "network", "/v2.0/quotas", port=1)

    found = await checked(tmp_path / "cloud.conf", empty)

    assert set(found) == {"quota-used-up"}
    assert found["quota-used-up"].subject == "quota of ports"
