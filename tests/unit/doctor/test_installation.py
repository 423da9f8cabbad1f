"""The commands that the doctor builds from an installation."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pileus.app.settings import TABLE
from pileus.deployment.flags import OWN, chosen
from pileus.deployment.manifests import objects
from pileus.doctor.installation import (
    Installation,
    in_pod,
    install,
    install_csi,
    installation_of,
    manifests,
    reading_flags,
    register_webhooks,
    restore_rights,
)
from pileus.doctor.records import Workload
from pileus.settings.flags import Table
from pileus.settings.sources import gather

PROVIDER = "--cloud-provider=local"
ACCOUNT = "kube-system/pileus-cloud-controller-manager"
INSTALLED = [
    pytest.param(("--cloud-config-secret=s",), id="defaults"),
    pytest.param(("--cloud-config-secret=s", "--cloud-config-secret-key=cloud.conf"), id="key"),
    pytest.param(("--daemonset", "--namespace=ops", "--image=registry.example/a:1"), id="daemons"),
    pytest.param(("--replicas=5", "--api-server=node", "--v=4"), id="own-node"),
    pytest.param(
        (
            "--api-server=https://[fd00::1]:7443",
            "--use-service-account-credentials",
            "--controllers=*,-service-lb-controller",
            "--cluster-cidr=10.0.0.0/8,fd00:1::/48",
            "--cluster-name=a shop's",
        ),
        id="flags",
    ),
]


def printed(line: list[str]) -> list[dict[str, Any]]:
    values = gather(Table((OWN, *TABLE.groups)), "pileus manifests", line, {}).values
    return list(objects(chosen(values, lambda path: Path(path).read_bytes())))


def installed(found: list[dict[str, Any]], **metadata: Any) -> Installation:
    (made,) = (each for each in found if each["kind"] in {"Deployment", "DaemonSet"})
    whole = {**made, "metadata": {**made["metadata"], **metadata}}
    read = installation_of(msgspec.convert(whole, Workload))
    assert read is not None
    return read


@pytest.mark.parametrize("flags", INSTALLED)
def test_the_command_prints_exactly_what_is_installed(flags: tuple[str, ...]) -> None:
    before = printed([PROVIDER, *flags])

    command = shlex.split(manifests(installed(before), ("--cloud-provider=other",)))

    assert command[:2] == ["pileus", "manifests"]
    assert printed(command[2:]) == before


def test_a_command_in_a_pod_has_the_files_and_the_flags_of_the_manager() -> None:
    flags = ("--cloud-config-secret=s", "--namespace=ops", "--cluster-name=a shop's")

    command = shlex.split(
        in_pod(installed(printed([PROVIDER, *flags]))).replace("…", "pileus plan")
    )

    where = "kubectl --namespace=ops exec deployment/pileus-cloud-controller-manager -- pileus plan"
    assert " ".join(command[:7]) == where
    assert set(command[7:]) > {"--cloud-config=/etc/cloud/cloud-config", "--cluster-name=a shop's"}


def test_a_command_outside_of_the_pod_has_the_flags_that_name_no_file_of_the_pod() -> None:
    flags = ("--cloud-config-secret=s", "--ssh-keys-from=file:/keys", "--cluster-name=shop")
    read = installed(printed([PROVIDER, *flags]))
    with_file = replace(read, arguments=("--config=/etc/cloud/config.yaml",))

    found = reading_flags(replace(read, variables={"PILEUS_CLUSTER_ID": "c", "HOME": "/"}))

    assert {PROVIDER, "--cluster-name=shop", "--cluster-id=c"} < {*found}
    assert not [one for one in found if "cloud-config" in one or "ssh-keys" in one]
    assert reading_flags(with_file) == ()


def test_variables_of_a_config_map_are_flags_of_the_command() -> None:
    before = printed([PROVIDER, "--cloud-config-secret=s", "--cluster-name=shop"])
    read = installed(before)
    given = {
        "PILEUS_CLOUD_PROVIDER": "local",
        "PILEUS_CLUSTER_NAME": "shop",
        "PILEUS_CLOUD_CONFIG": "/etc/cloud/cloud-config",
        "PILEUS_PERMIT_PORT_SHARING": "true",
    }
    by_variables = replace(read, arguments=(), variables=given)

    assert printed(shlex.split(manifests(by_variables, ()))[2:]) == before


def test_without_an_installation_the_flags_of_the_doctor_are_kept() -> None:
    given = (PROVIDER, "--cluster-name=shop")

    assert install(None, given) == (
        "pileus manifests --cloud-provider=local --cluster-name=shop | kubectl apply -f -"
    )
    assert "--cluster-name=shop --namespace=ops |" in restore_rights(
        None, given, "ops/pileus-cloud-controller-manager"
    )


def test_settings_in_files_of_the_pod_are_those_that_the_doctor_was_given() -> None:
    read = installed(printed([PROVIDER]))
    with_file = replace(read, arguments=("--config=/etc/cloud/config.yaml",))

    command = manifests(with_file, (PROVIDER, "--config=local.yaml"))

    assert "--config=local.yaml" in command
    assert "/etc/cloud/config.yaml" not in command


def test_helm_restores_what_helm_installed() -> None:
    annotations = {"meta.helm.sh/release-name": "my-release"}
    read = installed(printed([PROVIDER, "--namespace=ops"]), annotations=annotations)

    assert restore_rights(read, (), ACCOUNT).startswith(
        "helm get manifest my-release --namespace=ops | kubectl apply -f - --selector="
    )


def test_the_driver_is_installed_without_the_manager_and_with_its_image() -> None:
    read = installed(printed([PROVIDER, "--image=registry.example/a:1"]))

    fix, _, comment = install_csi(read, (), sidecars=False).partition("   # ")
    command, _, applied = fix.partition(" | ")

    assert "--image=registry.example/a:1" in command
    assert command.endswith("--csi --csi-without-sidecars")
    assert applied == "kubectl apply -f - --selector=app.kubernetes.io/component=csi"
    assert "image needs the extra csi" in comment, "the image of the manager may lack it"
    label = "app.kubernetes.io/component"
    chosen_parts = {
        each["kind"]
        for each in printed(shlex.split(command)[2:])
        if each["metadata"].get("labels", {}).get(label) == "csi"
    }
    assert {"CSIDriver", "DaemonSet", "ServiceAccount"} <= chosen_parts
    assert not chosen_parts & {"Deployment", "StorageClass", "Secret"}


WEBHOOKS = ("--webhooks=*", "--feature-gates=CloudControllerManagerWebhook=true")


def test_webhooks_are_registered_without_the_manager_and_with_its_flags() -> None:
    read = installed(printed([PROVIDER, "--namespace=ops", *WEBHOOKS]))

    command, _, applied = register_webhooks(read, ()).partition(" | ")

    assert applied == "kubectl apply -f - --selector=app.kubernetes.io/component=webhooks"
    chosen_parts = [
        (each["kind"], each["metadata"].get("namespace"))
        for each in printed(shlex.split(command)[2:])
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "webhooks"
    ]
    assert chosen_parts == [
        ("Service", "ops"),
        ("Secret", "kube-system"),
        ("MutatingWebhookConfiguration", None),
        ("ValidatingWebhookConfiguration", None),
    ]


def test_the_address_of_a_manager_outside_the_cluster_is_marked() -> None:
    fix = register_webhooks(None, (PROVIDER, *WEBHOOKS))

    command, _, comment = fix.partition("   # ")
    assert "--external --webhook-url=https://HOST:PORT |" in command
    assert comment == "HOST:PORT: where API servers reach the manager"
    there = shlex.split(command.partition(" | ")[0].replace("HOST:PORT", "ccm.example:10260"))
    assert "MutatingWebhookConfiguration" in {each["kind"] for each in printed(there[2:])}


@pytest.mark.parametrize(("sidecars", "values"), [(True, "true,"), (False, "true and csi.side")])
def test_helm_installs_the_driver_of_what_helm_installed(sidecars: bool, values: str) -> None:
    """What kubectl creates has no owner, and Helm refuses to take it into the release."""
    annotations = {"meta.helm.sh/release-name": "my-release"}
    read = installed(printed([PROVIDER, "--namespace=ops"]), annotations=annotations)

    fix = install_csi(read, (), sidecars=sidecars)

    assert fix.startswith("upgrade the Helm release my-release in namespace ops with the values ")
    assert f"csi.enabled={values}" in fix


def test_no_command_runs_in_a_pod_of_a_manager_without_pods() -> None:
    read = installed(printed([PROVIDER]))

    assert in_pod(read)
    assert in_pod(replace(read, replicas=0)) == ""


def test_another_account_is_not_given_rights_by_a_command_that_names_ours() -> None:
    assert restore_rights(None, (PROVIDER,), "ops/mine").startswith(
        "give service account ops/mine the roles that this prints: pileus manifests"
    )
