"""`pileus manifests`: what it prints, and how it answers wrong input."""

import io
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from pileus.cli.manifests import main
from pileus.cli.terminal import Terminal
from pileus.deployment.choice import DEFAULT_IMAGE

LOCAL = "--cloud-provider=local"


def call(*arguments: str, **environment: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main("pileus manifests", arguments, Terminal(out, err, environment))
    return code, out.getvalue(), err.getvalue()


def printed(*arguments: str) -> list[dict[str, Any]]:
    code, out, err = call(*arguments)
    assert (code, err) == (0, "")
    return list(yaml.safe_load_all(out))


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (one,) = (each for each in found if each["kind"] == kind)
    return one


def container(found: list[dict[str, Any]], kind: str = "Deployment") -> dict[str, Any]:
    return of_kind(found, kind)["spec"]["template"]["spec"]["containers"][0]


def test_flags_of_the_manager_become_arguments_of_the_container():
    found = printed(LOCAL, "--cluster-name", "shop", "--controllers=*,-service-lb-controller")

    arguments = container(found)["args"]
    assert container(found)["image"] == DEFAULT_IMAGE
    assert {LOCAL, "--cluster-name=shop", "--permit-port-sharing=true"} < set(arguments)
    assert "--controllers=*,-service-lb-controller" in arguments


@pytest.mark.parametrize(("shape", "kind"), [("--ha", "Deployment"), ("--daemonset", "DaemonSet")])
def test_pods_listen_beside_a_go_manager_on_the_same_host(shape: str, kind: str):
    manager = container(printed(LOCAL, shape), kind)

    assert "--secure-port=10292" in manager["args"]
    assert {manager[probe]["httpGet"]["port"] for probe in PROBES} == {10292}


PROBES = ("livenessProbe", "readinessProbe")
CHOSEN = [
    pytest.param(("--secure-port=10258",), {}, id="flag"),
    pytest.param((), {"PILEUS_SECURE_PORT": "10258"}, id="variable"),
    pytest.param(("--config=CONFIG",), {}, id="file"),
]


@pytest.mark.parametrize(("flags", "environment"), CHOSEN)
def test_a_port_that_is_given_is_kept(
    tmp_path: Path, flags: tuple[str, ...], environment: dict[str, str]
):
    file = tmp_path / "config.yaml"
    file.write_text("secure-port: 10258\n")
    line = (each.replace("CONFIG", str(file)) for each in flags)

    _, out, _ = call(LOCAL, *line, **environment)

    manager = container(list(yaml.safe_load_all(out)))
    assert "--secure-port=10292" not in manager["args"]
    assert {manager[probe]["httpGet"]["port"] for probe in PROBES} == {10258}


def test_a_manager_outside_of_pods_keeps_the_port_of_the_framework():
    _, out, _ = call(LOCAL, "--external", "-o", "systemd")

    assert "--secure-port" not in out


CONFIG = (
    "[Global]\nauth-url = https://keystone.example/v3\napplication-credential-id = a\n"
    "application-credential-secret = b\nregion = one\n"
)


def test_the_cloud_config_becomes_a_secret_that_the_container_reads(tmp_path: Path):
    file = tmp_path / "my.conf"
    file.write_text(CONFIG)

    found = printed(LOCAL, f"--cloud-config={file}")

    secret, pod = of_kind(found, "Secret"), of_kind(found, "Deployment")["spec"]["template"]
    assert b64decode(secret["data"]["cloud-config"]).decode() == CONFIG
    assert "--cloud-config=/etc/cloud/cloud-config" in container(found)["args"]
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == secret["metadata"]["name"]


def test_the_lease_of_a_migration_file_is_granted(tmp_path: Path):
    file = tmp_path / "migration.yaml"
    file.write_text(
        "apiVersion: controllermanager.config.k8s.io/v1\n"
        "kind: LeaderMigrationConfiguration\n"
        "leaderName: shared\n"
        "controllerLeaders: []\n"
    )
    flags = ("--enable-leader-migration", f"--leader-migration-config={file}")

    found = printed(LOCAL, *flags)

    leases = [
        rule["resourceNames"]
        for each in found
        for rule in each.get("rules", ())
        if "leases" in rule.get("resources", ()) and "resourceNames" in rule
    ]
    assert leases == [["cloud-controller-manager", "shared"]]
    assert "--leader-migration-config=/etc/cloud/leader-migration.yaml" in container(found)["args"]


def test_outside_of_the_cluster_only_rights_are_needed():
    kinds = {each["kind"] for each in printed(LOCAL, "--external")}

    assert kinds == {
        "ServiceAccount",
        "Secret",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    }


def test_a_daemon_set_needs_neither_shared_ports_nor_a_budget():
    found = printed(LOCAL, "--daemonset", "--image=registry.example/ccm:1")

    assert container(found, "DaemonSet")["image"] == "registry.example/ccm:1"
    assert "--permit-port-sharing=true" not in container(found, "DaemonSet")["args"]
    assert "PodDisruptionBudget" not in {each["kind"] for each in found}


def test_the_unit_runs_the_manager_with_its_flags_and_reads_files_as_credentials():
    code, out, _ = call(LOCAL, "--external", "--cloud-config=/etc/my.conf", "-o", "systemd")

    lines = out.splitlines()
    assert code == 0
    assert "LoadCredential=kubeconfig:/etc/pileus/kubeconfig" in lines
    assert "LoadCredential=cloud-config:/etc/my.conf" in lines
    assert "  --cloud-provider=local \\" in lines
    assert "  --cloud-config=%d/cloud-config \\" in lines
    assert "  --authorization-kubeconfig=%d/kubeconfig" in out


def test_several_clouds_have_a_credential_for_each_file():
    flags = ("--cloud-provider=openstack,local", "--cloud-config=/a,/b", "--external")

    lines = call(*flags, "-o", "systemd")[1].splitlines()

    assert "LoadCredential=cloud-config-2:/b" in lines
    assert "  --cloud-config=%d/cloud-config-1,%d/cloud-config-2 \\" in lines


def test_signs_that_systemd_expands_are_escaped():
    out = call(LOCAL, "--external", "--cluster-name=a%b $c", "-o", "systemd")[1]

    assert '  "--cluster-name=a%%b $$c" \\' in out.splitlines()


def test_a_cloud_config_that_the_manager_would_refuse_is_refused(tmp_path: Path):
    file = tmp_path / "cloud.conf"
    file.write_text("[Global]\nauth-url = https://keystone.example/v3\nregoin = one\n")
    code, _, wrong_key = call("--cloud-provider=openstack", f"--cloud-config={file}")
    file.write_bytes(b"\xff")
    _, _, not_text = call(LOCAL, f"--cloud-config={file}")

    assert code == 1
    assert "username is missing" in wrong_key
    assert f'--cloud-config: "{file}" is not UTF-8 text (byte 0)' in not_text


WRONG = [
    ((LOCAL, "--api-server=api.example:99999"), "use HOST, HOST:PORT"),
    ((LOCAL, "--api-server=10.0.0"), "use HOST, HOST:PORT"),
    ((LOCAL, "--api-server=a_b"), "use HOST, HOST:PORT"),
    ((LOCAL, "--cloud-config-secret=a", "--cloud-config-secret-key=a/b"), "is not a valid"),
    ((LOCAL, "--cloud-config-secret-key=a"), "needs --cloud-config-secret"),
    ((), "--cloud-provider is not set: use local or openstack"),
    (("--cloud-provider=openstak",), '(did you mean "openstack"?)'),
    (("--cloud-provider=acme",), "run the command in your image"),
    (("--cloud-provider=external",), "it is the value for kubelets"),
    ((LOCAL, "--controllers=cloud-nodes"), '(did you mean "cloud-node-controller"?)'),
    ((LOCAL, "--ha", "--daemonset"), "--ha and --daemonset exclude each other"),
    ((LOCAL, "--daemonset", "--replicas=3"), "--replicas is for a Deployment"),
    ((LOCAL, "--replicas=0"), "use 1 or more"),
    ((LOCAL, "--cloud-config=/absent"), "cannot read /absent: No such file"),
    ((LOCAL, "-o", "systemd"), "add --external"),
    ((LOCAL, "-o", "yml"), '(did you mean "yaml"?)'),
    ((LOCAL, "--namespace=My"), '"My" is not a valid name for --namespace'),
    ((LOCAL, "--cloud-config-secret=a_b"), '"a_b" is not a valid name'),
    ((LOCAL, "--image="), '"" is not a valid name for --image'),
    ((LOCAL, "--authorization-always-allow-paths=/healthz,/livez"), "lacks /readyz, which"),
    ((LOCAL, "--leader-migration-config=/absent"), "--leader-migration-config: "),
    ((LOCAL, "--api-server=a b"), "use HOST, HOST:PORT"),
    ((LOCAL, "--kubeconfig=/x"), "--kubeconfig is not for pods"),
    ((LOCAL, "--cloud-config=/x", "--cloud-config-secret=s"), "put them into the Secret"),
    ((LOCAL, "--monitoring=servce"), '(did you mean "service"?)'),
    ((LOCAL, "--monitoring=pod", "--external"), "no pods to monitor"),
    ((LOCAL, "--monitoring=pod", "--secure-port=0"), "--secure-port=0 serves no metrics"),
    ((LOCAL, "--monitoring=pod", "--bind-address=::1"), "cannot be reached by Prometheus"),
    ((LOCAL, "--monitoring=pod", "--monitoring-labels=release"), "use NAME=VALUE"),
    ((LOCAL, "--monitoring=service", "--prometheus-account=prom"), "use NAMESPACE/NAME"),
    ((LOCAL, "--prometheus-account=a/b"), "needs --monitoring=service"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_input_is_answered_with_one_sentence(arguments: tuple[str, ...], message: str):
    code, out, err = call(*arguments)

    assert (code, out) == (1, "")
    assert message in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


def test_an_unknown_flag_is_answered_with_the_one_meant():
    code, _, err = call(LOCAL, "--daemon-set")

    assert code == 1
    assert "did you mean --daemonset?" in err


@pytest.mark.parametrize(
    ("provider", "ending"),
    [
        ("opnstack", '(did you mean "openstack"?)\n'),
        (
            "elsewhere",
            "Fix: install the provider's package here, or run the command in your image\n",
        ),
    ],
)
def test_an_unknown_provider_gets_one_fix(provider: str, ending: str):
    code, out, err = call(f"--cloud-provider={provider}")

    assert (code, out) == (1, "")
    assert f'unknown cloud provider "{provider}"' in err
    assert err.endswith(ending)
