"""Flags win over the pod's own access, which wins over KUBERNETES_MASTER."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pileus.kube.config.choose import load_access, load_delegated_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.pki import Authority
from tests.unit.kube.config.stage import Stage, authorization

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
CA = Authority("cluster-ca", now=datetime.now(UTC)).certificate


def test_master_takes_the_place_of_the_files_server_but_not_of_its_user(stage: Stage) -> None:
    cluster = {"server": "https://a:6443", "tls-server-name": "a.example"}
    stage.write(cluster, {"token": "t0ken"})

    access = stage.load(master="https://b:6443/prefix/")

    assert access.server == "https://b:6443/prefix"
    assert access.server_name is None


def test_the_files_server_name_is_kept_without_master(stage: Stage) -> None:
    stage.write({"server": "https://a:6443", "tls-server-name": "a.example"}, {})

    access = stage.load()

    assert (access.server, access.server_name) == ("https://a:6443", "a.example")


async def test_master_alone_means_no_credentials(stage: Stage) -> None:
    access = load_access("", "127.0.0.1:8080", POD, stage.here)

    assert access.server == "http://127.0.0.1:8080"
    assert dict(await access.credentials.headers()) == {}
    assert access.credentials.tls() is None


async def test_a_pod_uses_its_service_account(stage: Stage) -> None:
    stage.mount_service_account("pod-token\n", CA)
    environ = {**POD, "KUBERNETES_MASTER": "http://elsewhere", "KUBECONFIG": "/nowhere"}

    access = load_access("", "", environ, stage.here)

    assert access.server == "https://10.0.0.1:443"
    assert access.namespace == "kube-system"
    assert await authorization(access) == "Bearer pod-token"
    assert "ca.crt" in access.trust


def test_an_ipv6_host_is_bracketed(stage: Stage) -> None:
    stage.mount_service_account("pod-token", CA)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}

    assert load_access("", "", environ, stage.here).server == "https://[fd00::1]:6443"


def test_kubernetes_master_is_the_last_resort(stage: Stage) -> None:
    access = load_access("", "", {"KUBERNETES_MASTER": "http://10.1.1.1:8080"}, stage.here)

    assert access.server == "http://10.1.1.1:8080"


@pytest.mark.parametrize("environ", [{}, {"KUBECONFIG": "/some/file"}, POD])
def test_with_nothing_at_all_the_error_names_every_way(
    stage: Stage, environ: dict[str, str]
) -> None:
    with pytest.raises(InvalidConfiguration, match=r"^invalid configuration") as caught:
        load_access("", "", environ, stage.here)

    said = str(caught.value)
    assert all(way in said for way in ("--kubeconfig", "--master", "in a pod", "KUBERNETES_MASTER"))


def test_a_pod_without_its_token_is_told_which_file_is_missing(stage: Stage) -> None:
    with pytest.raises(InvalidConfiguration, match="serviceaccount/token: No such file"):
        load_access("", "", POD, stage.here)


async def test_a_pod_without_a_mounted_authority_trusts_the_systems(stage: Stage) -> None:
    folder = stage.mount_service_account("pod-token", CA)
    (folder / "ca.crt").unlink()

    access = load_access("", "", POD, stage.here)

    assert access.trust == "the system's authorities"


def test_a_kubeconfig_in_a_pod_wins_over_the_pod(stage: Stage) -> None:
    stage.mount_service_account("pod-token", CA)
    stage.environ.update(POD)
    stage.write({"server": "http://file"}, {})

    assert stage.load().server == "http://file"


def test_a_missing_file_is_named_with_its_flag(stage: Stage) -> None:
    missing = str(stage.folder / "nope")
    said = f"={missing}: cannot read it: No such file"

    with pytest.raises(InvalidConfiguration, match=f"--kubeconfig{said}"):
        load_access(missing, "", {}, stage.here)
    with pytest.raises(InvalidConfiguration, match=f"--authentication-kubeconfig{said}"):
        load_delegated_access("--authentication-kubeconfig", missing, {}, stage.here)


def test_a_folder_instead_of_a_file_is_told(stage: Stage) -> None:
    with pytest.raises(InvalidConfiguration, match="Is a directory"):
        load_access(str(stage.folder), "", {}, stage.here)


def test_outside_a_pod_and_without_file_there_is_no_delegated_access(stage: Stage) -> None:
    assert load_delegated_access("--authorization-kubeconfig", "", {}, stage.here) is None


async def test_delegated_access_comes_from_its_file_or_else_from_the_pod(stage: Stage) -> None:
    stage.mount_service_account("pod-token", CA)
    stage.write({"server": "http://127.0.0.1:1"}, {"token": "reviewer"})

    given = load_delegated_access("--x", str(stage.kubeconfig), POD, stage.here)
    pod = load_delegated_access("--x", "", POD, stage.here)

    assert given
    assert pod
    assert await authorization(given) == "Bearer reviewer"
    assert await authorization(pod) == "Bearer pod-token"


def test_a_relative_path_is_shown_whole(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidConfiguration, match=str(tmp_path / "nope")):
        load_access("nope", "", {}, stage.here)
