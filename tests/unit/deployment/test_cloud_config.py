"""`pileus manifests` finds the problems of cloud.conf that the provider finds in `pileus plan`."""

import io
from pathlib import Path

import pytest

from pileus.cli.manifests import main
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack.load import load

LOGIN = """[Global]
auth-url = http://keystone/v3
application-credential-id = a
application-credential-secret = hunter2
"""
CLOUDS = """clouds:
  openstack:
    auth:
      auth_url: http://keystone/v3
      application_credential_id: a
      application_credential_secret: b
"""
BAD = [
    pytest.param("[Global]\nauth-url = http://k\nregoin = one\n", id="credentials"),
    pytest.param("auth-url = http://k\n", id="syntax"),
    pytest.param(f"{LOGIN}[LoadBalancer]\nlb-method = X\nmonitor-delay = x\n", id="value"),
    pytest.param(f"{LOGIN}[LoadBalancer]\nlb-vesion = v2\n", id="unknown-key"),
    pytest.param(f"{LOGIN}[LoadBalancers]\nlb-method = SOURCE_IP\n", id="unknown-section"),
    pytest.param(f"{LOGIN}[LoadBalancer]\nuse-octavia = true\n", id="removed-key"),
    pytest.param(f"{LOGIN}[LoadBalancer]\nlb-provider = acme\n", id="unusual-value"),
    pytest.param(f"{LOGIN}tls-insecure = true\n", id="insecure"),
    pytest.param("[Global]\nuse-clouds = true\nregoin = one\n", id="use-clouds-unknown-key"),
    pytest.param(
        "[Global]\nuse-clouds = true\n[LoadBalancer]\ncreate-monitor = true\nmonitor-delay = 1s\n"
        "monitor-timeout = 2s\n",
        id="use-clouds-value",
    ),
    pytest.param(
        "[Global]\nuse-clouds = true\n[LoadBalancer]\nlb-provider = acme\n",
        id="use-clouds-unusual-value",
    ),
]
WAYS = [
    pytest.param((), id="pods"),
    pytest.param(("--external",), id="external"),
    pytest.param(("--external", "--output=systemd"), id="unit"),
]


def manifests(*flags: str) -> tuple[int, str]:
    """Returns the exit code, and what is written to standard error."""
    out, err = io.StringIO(), io.StringIO()
    code = main("pileus manifests", flags, Terminal(out, err, {}))
    return code, err.getvalue()


def planned(text: str, path: Path) -> tuple[int, str]:
    """Returns the same of what the start of the provider reports, as `pileus plan` does it."""
    given = ProviderConfig(
        path=str(path), text=text, environ={"OS_CLIENT_CONFIG_FILE": str(path.with_name("c.yaml"))}
    )
    try:
        warnings = load(given).warnings
    except Misconfigured as error:
        return 1, f"Error: {error}\n"
    return 0, "".join(f"Warning: {each}\n" for each in warnings)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CLOUDS)
    return tmp_path / "cloud.conf"


@pytest.mark.parametrize("flags", WAYS)
@pytest.mark.parametrize("text", BAD)
def test_a_bad_file_has_the_same_problems_in_plan_and_manifests(
    file: Path, text: str, flags: tuple[str, ...]
) -> None:
    file.write_text(text)
    code, problems = planned(text, file)

    assert problems
    assert manifests("--cloud-provider=openstack", f"--cloud-config={file}", *flags) == (
        code,
        problems,
    )


@pytest.mark.parametrize("text", BAD)
def test_each_cloud_of_the_configuration_file_is_checked(file: Path, text: str) -> None:
    file.write_text(text)
    config = file.with_name("config.yaml")
    config.write_text(
        f"clouds:\n- {{provider: local, default: true}}\n"
        f"- {{provider: openstack, cloud-config: {file}, default: false}}\n"
    )

    assert manifests(f"--config={config}") == planned(text, file)


def test_a_good_file_has_no_problem(file: Path) -> None:
    file.write_text(LOGIN)

    assert planned(LOGIN, file) == (0, "")
    assert manifests("--cloud-provider=openstack", f"--cloud-config={file}") == (0, "")


def test_a_file_that_only_the_managers_machine_has_is_reported_as_not_checked(file: Path) -> None:
    code, problems = manifests("--cloud-provider=openstack", "--external", f"--cloud-config={file}")

    assert code == 0
    assert problems.startswith(f"Warning: {file} is not checked, because it cannot be read here: ")


@pytest.mark.parametrize(
    ("flags", "more"),
    [
        ((), ", or --cloud-config-secret with the name of a Secret that has the file"),
        (("--external", "--output=systemd"), ""),
    ],
    ids=["pods", "unit"],
)
def test_openstack_without_a_file_is_a_warning_because_the_manager_cannot_start(
    flags: tuple[str, ...], more: str
) -> None:
    with pytest.raises(Misconfigured):
        load(ProviderConfig())

    code, problems = manifests("--cloud-provider=openstack", *flags)

    assert code == 0
    assert problems == (
        "Warning: --cloud-provider=openstack without --cloud-config: the manager cannot start, "
        f"because this provider needs a file. Fix: add --cloud-config=PATH{more}\n"
    )


def test_each_of_several_openstack_clouds_without_a_file_is_a_warning(file: Path) -> None:
    listed = file.with_name("config.yaml")
    listed.write_text("clouds:\n- {provider: local, default: true}\n- {provider: openstack}\n")

    by_flags = manifests("--cloud-provider=local,openstack")
    by_list = manifests(f"--config={listed}")

    assert "Warning: --cloud-config has no file for openstack: the manager cannot" in by_flags[1]
    assert 'Warning: cloud "openstack" of the list clouds has no cloud-config: the' in by_list[1]
    assert "local" not in by_flags[1] + by_list[1]


def test_one_secret_for_several_clouds_is_a_warning_because_the_manager_cannot_start() -> None:
    code, problems = manifests("--cloud-provider=openstack,local", "--cloud-config-secret=mine")

    assert code == 0
    assert problems == (
        "Warning: --cloud-config-secret has one file for 2 clouds: the manager cannot start. Fix: "
        "give --cloud-config instead, with one file per provider, comma-separated\n"
    )


def test_rights_alone_a_secret_and_a_provider_without_a_file_are_no_warning() -> None:
    assert manifests("--cloud-provider=openstack", "--external") == (0, "")
    assert manifests("--cloud-provider=openstack", "--cloud-config-secret=mine") == (0, "")
    assert manifests("--cloud-provider=local") == (0, "")
