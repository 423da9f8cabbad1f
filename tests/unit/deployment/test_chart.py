"""The Helm chart, rendered by the real helm: the same objects as `pileus manifests`."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pileus.app.settings import TABLE
from pileus.deployment.flags import OWN, chosen
from pileus.deployment.manifests import objects
from pileus.settings.flags import Table
from pileus.settings.sources import gather

CHART = Path(__file__).parents[3] / "deploy" / "chart" / "pileus"
HELM = os.environ.get("PILEUS_HELM", "")
pytestmark = pytest.mark.skipif(
    not HELM, reason="no real helm: PILEUS_HELM is not set (see make test)"
)
OPENSTACK = {"cloudProvider": "openstack"}


def helm(
    *arguments: str, values: dict[str, Any] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [HELM, *arguments, "--values=-"],
        input=yaml.safe_dump(values or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(namespace: str = "kube-system", **values: Any) -> list[dict[str, Any]]:
    given = OPENSTACK | values
    done = helm("template", "pileus", str(CHART), f"--namespace={namespace}", values=given)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def printed(*flags: str) -> list[dict[str, Any]]:
    """What `pileus manifests` prints."""
    line = ("--cloud-provider=openstack", *flags)
    values = gather(Table((OWN, *TABLE.groups)), "pileus manifests", line, {}).values
    return list(objects(chosen(values, lambda path: Path(path).read_bytes())))


def ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In an order that does not depend on the program. Helm creates namespaces itself."""
    return sorted(
        (each for each in found if each["kind"] != "Namespace"),
        key=lambda each: (each["kind"], str(each["metadata"])),
    )


CIDR = "10.244.0.0/16"
ALLOCATION = {"allocate-node-cidrs": True, "cluster-cidr": CIDR}
OWN_ACCOUNTS = {"use-service-account-credentials": True}
GATE = "CloudControllerManagerWebhook=true"
GATES = {"CloudControllerManagerWebhook": True}
CASES = [
    pytest.param({}, (), id="defaults"),
    pytest.param({"kind": "DaemonSet"}, ("--daemonset",), id="daemonset"),
    pytest.param({"replicas": 1}, ("--replicas=1",), id="one-replica"),
    pytest.param(
        {"image": {"repository": "registry.example/ccm", "tag": "1"}},
        ("--image=registry.example/ccm:1",),
        id="image",
    ),
    pytest.param({"cloudConfigSecret": "s"}, ("--cloud-config-secret=s",), id="secret"),
    pytest.param(
        {"cloudConfigSecret": "s", "cloudConfigSecretKey": "cloud.conf"},
        ("--cloud-config-secret=s", "--cloud-config-secret-key=cloud.conf"),
        id="secret-key",
    ),
    pytest.param({"apiServer": {"host": "node"}}, ("--api-server=node",), id="own-node"),
    pytest.param(
        {"apiServer": {"host": "api.example", "port": 8443}},
        ("--api-server=https://api.example:8443",),
        id="api-server",
    ),
    pytest.param(
        {"flags": {"webhooks": ["*"], "feature-gates": GATES}},
        ("--webhooks=*", f"--feature-gates={GATE}"),
        id="webhooks",
    ),
    pytest.param(
        {
            "flags": {
                "webhooks": ["persistentvolume-labels"],
                "feature-gates": GATES,
                "webhook-secure-port": 9443,
                "webhook-cert-dir": "/certs",
                **OWN_ACCOUNTS,
            }
        },
        (
            "--webhooks=persistentvolume-labels",
            f"--feature-gates={GATE}",
            "--webhook-secure-port=9443",
            "--webhook-cert-dir=/certs",
            "--use-service-account-credentials",
        ),
        id="one-webhook",
    ),
    pytest.param(
        {"flags": {"webhooks": ["*"], "feature-gates": GATES, "dry-run": True}},
        ("--webhooks=*", f"--feature-gates={GATE}", "--dry-run"),
        id="webhooks-dry-run",
    ),
    pytest.param(
        {"flags": {"secure-port": 0, "cluster-id": "x"}},
        ("--secure-port=0", "--cluster-id=x"),
        id="no-port",
    ),
    pytest.param(
        {"flags": {"secure-port": 10300, "bind-address": "10.0.0.1"}},
        ("--secure-port=10300", "--bind-address=10.0.0.1"),
        id="port",
    ),
    pytest.param({"flags": {"bind-address": "::"}}, ("--bind-address=::",), id="any-address"),
    pytest.param(
        {"flags": {"cluster-cidr": CIDR, **OWN_ACCOUNTS}},
        (f"--cluster-cidr={CIDR}", "--use-service-account-credentials"),
        id="routes-with-own-accounts",
    ),
    pytest.param(
        {"flags": {"cluster-cidr": CIDR, "configure-cloud-routes": False}},
        (f"--cluster-cidr={CIDR}", "--configure-cloud-routes=false"),
        id="no-routes",
    ),
    pytest.param(
        {
            "flags": {
                "controllers": ["*", "nodeipam"],
                "allocate-node-cidrs": True,
                "cluster-cidr": CIDR,
            }
        },
        ("--controllers=*,nodeipam", "--allocate-node-cidrs", f"--cluster-cidr={CIDR}"),
        id="ipam",
    ),
    pytest.param(
        {"flags": {"controllers": ["cloud-node-controller"], **OWN_ACCOUNTS}},
        ("--controllers=cloud-node-controller", "--use-service-account-credentials"),
        id="nodes-only",
    ),
    pytest.param(
        {"flags": {"controllers": ["*", "-service"]}},
        ("--controllers=*,-service",),
        id="no-services",
    ),
    pytest.param(
        {"flags": {"ssh-keys-from": "secret:ops/keys", **OWN_ACCOUNTS}},
        ("--ssh-keys-from=secret:ops/keys", "--use-service-account-credentials"),
        id="ssh-keys",
    ),
    pytest.param(
        {"flags": {"ssh-keys-from": "file:/keys"}}, ("--ssh-keys-from=file:/keys",), id="ssh-file"
    ),
    pytest.param(
        {"flags": {"dry-run": True, "ssh-keys-from": "configmap:ops/keys", **OWN_ACCOUNTS}},
        ("--dry-run", "--ssh-keys-from=configmap:ops/keys", "--use-service-account-credentials"),
        id="dry-run",
    ),
    pytest.param(
        {
            "flags": {
                "controllers": ["cloud-node", "cloud-node-lifecycle", "route", "service"],
                "bind-address": "127.0.0.1",
            }
        },
        (
            "--controllers=cloud-node,cloud-node-lifecycle,route,service",
            "--bind-address=127.0.0.1",
        ),
        id="as-the-go-manager-s-chart",
    ),
    pytest.param({"flags": {"leader-elect": False}}, ("--leader-elect=false",), id="no-election"),
    pytest.param(
        {
            "flags": {
                "enable-leader-migration": True,
                "leader-elect-resource-name": "ccm",
                "leader-elect-resource-namespace": "ops",
            }
        },
        (
            "--enable-leader-migration",
            "--leader-elect-resource-name=ccm",
            "--leader-elect-resource-namespace=ops",
        ),
        id="migration",
    ),
    pytest.param(
        {"flags": {"feature-gates": {"CloudControllerManagerWebhook": True}, "v": 4}},
        ("--feature-gates=CloudControllerManagerWebhook=true", "-v=4"),
        id="kinds-of-values",
    ),
    pytest.param(
        {"monitoring": {"monitor": "service"}}, ("--monitoring=service",), id="service-monitor"
    ),
    pytest.param(
        {
            "monitoring": {
                "monitor": "service",
                "prometheus": {"namespace": "ops", "name": "prom"},
                "labels": {"release": "x", "team": "cloud"},
                "runbookUrl": "https://wiki.example/",
            },
            "flags": {"secure-port": 10300},
        },
        (
            "--monitoring=service",
            "--prometheus-account=ops/prom",
            "--monitoring-labels=release=x,team=cloud",
            "--runbook-url=https://wiki.example/",
            "--secure-port=10300",
        ),
        id="service-monitor-with-values",
    ),
    pytest.param({"monitoring": {"monitor": "pod"}}, ("--monitoring=pod",), id="pod-monitor"),
    pytest.param({"csi": {"enabled": True}}, ("--csi",), id="csi"),
    pytest.param(
        {
            "csi": {
                "enabled": True,
                "snapshots": True,
                "registry": "registry.example/storage/",
                "nodeImage": "registry.example/node:1",
                "kubeletDir": "/var/lib/k0s/kubelet/",
            },
            "cloudConfigSecret": "s",
            "replicas": 3,
            "apiServer": {"host": "api.example", "port": 8443},
            "image": {"repository": "registry.example/ccm", "tag": "1"},
            "flags": {"cluster-id": "x", "cluster-name": "shop", "controllers": ["*"], "v": 4},
        },
        (
            "--csi",
            "--csi-snapshots",
            "--csi-sidecar-registry=registry.example/storage/",
            "--csi-node-image=registry.example/node:1",
            "--kubelet-dir=/var/lib/k0s/kubelet/",
            "--cloud-config-secret=s",
            "--replicas=3",
            "--api-server=https://api.example:8443",
            "--image=registry.example/ccm:1",
            "--cluster-id=x",
            "--cluster-name=shop",
            "--controllers=*",
            "-v=4",
        ),
        id="csi-with-values",
    ),
    pytest.param(
        {
            "csi": {"enabled": True, "sidecars": False},
            "kind": "DaemonSet",
            "apiServer": {"host": "node"},
            "flags": {"controllers": ["*", "volume-controller"]},
        },
        (
            "--csi",
            "--csi-without-sidecars",
            "--daemonset",
            "--api-server=node",
            "--controllers=*,volume-controller",
        ),
        id="csi-without-sidecars",
    ),
    pytest.param(
        {
            "csi": {"enabled": True},
            "monitoring": {"monitor": "service", "labels": {"release": "x"}},
        },
        ("--csi", "--monitoring=service", "--monitoring-labels=release=x"),
        id="csi-monitored",
    ),
    pytest.param(
        {"csi": {"enabled": True, "sidecars": False}, "monitoring": {"monitor": "pod"}},
        ("--csi", "--csi-without-sidecars", "--monitoring=pod"),
        id="csi-nodes-monitored",
    ),
]


@pytest.mark.parametrize(("values", "flags"), CASES)
def test_the_chart_renders_what_the_command_prints(values: dict[str, Any], flags: tuple[str, ...]):
    assert ordered(rendered(**values)) == ordered(printed(*flags))


def test_the_chart_renders_another_namespace_and_the_cloud_config(tmp_path: Path):
    file = tmp_path / "cloud.conf"
    file.write_text(
        "[Global]\nauth-url=https://keystone.example\nuser-id=a\npassword=b\ntenant-id=c\n"
    )

    values = {"cloudConfig": file.read_text(), "csi": {"enabled": True}}
    found = rendered("ops", **values)

    assert ordered(found) == ordered(printed(f"--cloud-config={file}", "--namespace=ops", "--csi"))


def test_pods_get_the_labels_annotations_tolerations_and_pull_secrets_of_the_values():
    more = {"key": "dedicated", "operator": "Exists"}
    found = rendered(
        podLabels={"team": "a"},
        podAnnotations={"b": "c"},
        tolerations=[more],
        imagePullSecrets=["registry"],
        cloudConfig="x",
    )

    (pod,) = (each["spec"]["template"] for each in found if each["kind"] == "Deployment")
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["annotations"].keys() == {"b", "checksum/cloud-config"}
    assert pod["spec"]["tolerations"][-1] == more
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_the_manager_gets_volumes_variables_and_a_place_of_the_values():
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    values: dict[str, Any] = {
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "private-ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/private-ca", "readOnly": True}],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [spread],
        "priorityClassName": "mine",
        "serviceAccount": {"annotations": {"a": "b"}},
        "image": {"repository": "registry.example/p", "digest": f"sha256:{'0' * 64}"},
        "apiServer": {"host": "api.example"},
    }
    for kind in ("Deployment", "DaemonSet"):
        found = rendered(kind=kind, **values)

        (pod,) = (each["spec"]["template"]["spec"] for each in found if each["kind"] == kind)
        (container,) = pod["containers"]
        (account,) = (each for each in found if each["kind"] == "ServiceAccount")
        assert pod["volumes"][-1] == values["extraVolumes"][0]
        assert container["volumeMounts"][-1] == values["extraVolumeMounts"][0]
        names = [each["name"] for each in container["env"]]
        assert names == ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY"]
        for name in ("nodeSelector", "affinity", "topologySpreadConstraints", "priorityClassName"):
            assert pod[name] == values[name]
        assert container["image"] == f"registry.example/p@sha256:{'0' * 64}"
        assert account["metadata"]["annotations"] == {"a": "b"}


def test_a_variable_needs_no_address_of_the_api_server():
    found = rendered(extraEnv=[{"name": "A", "value": "b"}])

    (pod,) = (each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment")
    assert pod["containers"][0]["env"] == [{"name": "A", "value": "b"}]


def test_the_controller_of_the_csi_driver_has_the_private_ca_and_the_proxy_of_the_manager():
    values: dict[str, Any] = {
        "extraVolumes": [{"name": "ca", "secret": {"secretName": "private-ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/private-ca", "readOnly": True}],
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
        "imagePullSecrets": ["registry"],
    }

    found = {each["metadata"]["name"]: each for each in rendered(**values, csi={"enabled": True})}

    pods = [
        found[name]["spec"]["template"]["spec"]
        for name in ("pileus-csi-controller", "pileus-csi-node")
    ]
    (driver, *sidecars), (node,) = (each["containers"] for each in pods)
    assert pods[0]["volumes"][-1] == values["extraVolumes"][0]
    assert driver["volumeMounts"][-1] == values["extraVolumeMounts"][0]
    assert driver["env"] == values["extraEnv"]
    for each in (*sidecars, node):
        assert "HTTPS_PROXY" not in str(each)
        assert "private-ca" not in str(each)
    assert all(each["imagePullSecrets"] == [{"name": "registry"}] for each in pods)


def test_the_controller_of_the_csi_driver_runs_where_the_manager_does_and_nodes_run_everywhere():
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    values: dict[str, Any] = {
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [spread],
        "priorityClassName": "mine",
    }
    more = {"key": "dedicated", "operator": "Exists"}
    places: tuple[dict[str, Any], ...] = ({}, {**values, "tolerations": [more]})

    without, given = (
        {
            each["metadata"]["name"]: each["spec"]["template"]["spec"]
            for each in rendered(**place, csi={"enabled": True})
            if each["kind"] in {"Deployment", "DaemonSet"}
        }
        for place in places
    )

    controller = given["pileus-csi-controller"]
    assert {name: controller[name] for name in values} == values
    assert controller["tolerations"] == [*without["pileus-csi-controller"]["tolerations"], more]
    assert given["pileus-csi-node"] == without["pileus-csi-node"]
    assert without["pileus-csi-node"]["tolerations"] == [{"operator": "Exists"}]


def test_a_chart_that_is_not_enabled_renders_nothing():
    assert rendered(enabled=False, monitoring={"monitor": "pod"}, csi={"enabled": True}) == []


@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_that_depends_on_this_one_turns_it_on_and_off(tmp_path: Path, enabled: bool):
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    pileus = {"name": "pileus", "version": version, "condition": "pileus.enabled"}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [pileus]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(about))
    shutil.copytree(CHART, tmp_path / "charts" / "pileus")
    values = {"global": {"team": "a"}, "pileus": OPENSTACK | {"enabled": enabled}}

    done = helm("template", "pileus", str(tmp_path), "--namespace=kube-system", values=values)

    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert done.returncode == 0, done.stderr
    assert ordered(found) == (ordered(rendered()) if enabled else [])


def test_a_private_ca_in_the_secret_is_where_the_guide_says():
    guide = (CHART.parents[2] / "docs" / "guides" / "run-on-openstack.md").read_text()
    (path,) = re.findall(r"`ca-file = (\S+)`", guide)
    (secret, key) = re.findall(r"create secret generic (\S+) .*--from-file=(\S+)", guide)[-1]

    found = rendered(cloudConfigSecret=secret, csi={"enabled": True})

    pods = [each["spec"]["template"]["spec"] for each in found if each["kind"] == "Deployment"]
    assert len(pods) == 2
    for pod in pods:
        (volume,) = (each for each in pod["volumes"] if each["name"] == "cloud-config")
        (mount,) = (
            each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "cloud-config"
        )
        assert volume["secret"] == {"secretName": secret}, "all keys are files"
        assert "subPath" not in mount, "a changed Secret is seen"
        assert f"{mount['mountPath']}/{key}" == path


def test_lint_finds_nothing():
    done = helm("lint", "--strict", str(CHART), values=OPENSTACK)

    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


WRONG = [
    pytest.param({}, "cloudProvider is not set. Fix: add --set cloudProvider=NAME", id="provider"),
    pytest.param(
        {"flags": {"clustr-name": "x"}},
        "at '/flags': additional properties 'clustr-name' not allowed",
        id="flag",
    ),
    pytest.param(
        {"flags": {"controllers": ["nodes"]}},
        "at '/flags/controllers/0': value must be one of '*', 'cloud-node-controller'",
        id="controller",
    ),
    pytest.param({"replicas": "two"}, "at '/replicas': got string, want integer", id="replicas"),
    pytest.param(
        {"kind": "Job"}, "at '/kind': value must be one of 'Deployment', 'DaemonSet'", id="kind"
    ),
    pytest.param(
        OPENSTACK | {"monitoring": {"monitor": "job"}},
        "at '/monitoring/monitor': value must be one of '', 'service', 'pod'",
        id="monitor",
    ),
    pytest.param(
        OPENSTACK | {"monitoring": {"monitor": "pod"}, "flags": {"secure-port": 0}},
        "secure-port=0 serves no metrics. Fix: remove one of them",
        id="no-metrics",
    ),
    pytest.param(
        OPENSTACK | {"monitoring": {"monitor": "pod"}, "flags": {"bind-address": "127.0.0.1"}},
        "Prometheus cannot reach the flag bind-address",
        id="loopback",
    ),
    pytest.param(
        OPENSTACK | {"csi": {"enabled": True, "snapshots": True, "sidecars": False}},
        "csi.snapshots needs csi.sidecars",
        id="snapshots",
    ),
    pytest.param(
        {"cloudProvider": "openstack,local", "csi": {"enabled": True}},
        "a driver serves one cloud",
        id="two-clouds",
    ),
    pytest.param(OPENSTACK | {"csi": {"kubeletDir": "x"}}, "at '/csi/kubeletDir'", id="kubelet"),
    pytest.param(
        {"imag": {}}, "at '': additional properties 'imag' not allowed", id="unknown-value"
    ),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_wrong_values_are_refused_with_their_place(values: dict[str, Any], message: str):
    done = helm("template", "pileus", str(CHART), values=values)

    assert done.returncode == 1
    assert message in done.stderr
