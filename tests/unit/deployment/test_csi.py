"""The objects of `pileus manifests --csi`."""

import io
from typing import Any

import pytest
import yaml

from pileus.cli.manifests import main
from pileus.cli.terminal import Terminal
from pileus.csi.run import Mode
from pileus.deployment.csi import METRICS_PORTS

OPENSTACK = "--cloud-provider=openstack"
SECRET = "--cloud-config-secret=mine"
IMAGE = "registry.example/pileus:1-csi"


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = main("pileus manifests", (OPENSTACK, SECRET, *arguments), Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


def printed(*arguments: str) -> dict[tuple[str, str], dict[str, Any]]:
    code, out, err = call(f"--image={IMAGE}", *arguments)
    assert (code, err) == (0, "")
    found = yaml.safe_load_all(out)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod(one: dict[str, Any]) -> dict[str, Any]:
    return one["spec"]["template"]["spec"]


def test_nothing_of_the_driver_is_printed_without_the_flag():
    assert not [name for _, name in printed() if "csi" in name]


def test_the_controller_has_its_sidecars_and_the_clouds_configuration():
    found = printed("--csi", "--cluster-id=c1", "--replicas=3")

    controller = found["Deployment", "pileus-csi-controller"]
    containers = {each["name"]: each for each in pod(controller)["containers"]}
    assert list(containers) == ["driver", "csi-provisioner", "csi-attacher", "csi-resizer"]
    driver = containers["driver"]
    assert driver["args"][0] == f"--mode={Mode.CONTROLLER}"
    assert {OPENSTACK, "--cluster-id=c1", "--cloud-config=/etc/cloud/cloud-config"} < {
        *driver["args"]
    }
    assert not [each for each in driver["args"] if "port-sharing" in each]
    volumes = {each["name"]: each for each in pod(controller)["volumes"]}
    assert volumes["cloud-config"]["secret"]["secretName"] == "mine"
    for each in containers.values():
        mounts = {mount["name"] for mount in each["volumeMounts"]}
        assert "socket" in mounts, each["name"]
    assert controller["spec"]["replicas"] == 3
    assert ("ClusterRole", "pileus-csi-controller") not in found, "the cluster ID is given"


def test_the_node_plugin_is_privileged_and_has_no_credentials_of_the_cloud():
    found = printed("--csi", "--kubelet-dir=/var/lib/k0s/kubelet/")

    node = pod(found["DaemonSet", "pileus-csi-node"])
    (driver,) = node["containers"]
    assert driver["securityContext"]["privileged"]
    assert not [each for each in driver["args"] if "cloud-config" in each]
    assert not [each for each in node["volumes"] if "secret" in each]
    kubelet = next(each for each in driver["volumeMounts"] if each["name"] == "kubelet")
    assert kubelet["mountPath"] == "/var/lib/k0s/kubelet"
    assert kubelet["mountPropagation"] == "Bidirectional"
    assert "--kubelet-dir=/var/lib/k0s/kubelet" in driver["args"], "it registers itself"
    assert not [each for each in driver["args"] if "--endpoint" in each]
    rules = found["ClusterRole", "pileus-csi-node"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]


def test_each_sidecar_can_change_its_own_lease_only():
    found = printed("--csi", "--csi-snapshots")
    names: dict[str, str] = {}
    for (kind, name), role in found.items():
        leases = [one for one in role.get("rules", ()) if one.get("resources") == ["leases"]]
        if not name.startswith("pileus-csi") or not leases:
            continue
        assert kind == "Role"
        assert role["metadata"]["namespace"] == "kube-system"
        for rule in leases:
            if "create" in rule["verbs"]:
                assert rule["verbs"] == ["create"]
            else:
                assert rule["verbs"] == ["get", "update"]
                (names[name.rpartition(":")[2]],) = rule["resourceNames"]

    driver = "openstack-csi-pileus-dev"
    assert names == {
        "csi-provisioner": driver,
        "csi-attacher": f"external-attacher-leader-{driver}",
        "csi-resizer": f"external-resizer-{driver}",
        "csi-snapshotter": f"external-snapshotter-leader-{driver}",
    }


def test_snapshots_are_added_on_demand():
    without, with_ = printed("--csi"), printed("--csi", "--csi-snapshots")

    added = with_.keys() - without.keys()
    assert ("VolumeSnapshotClass", "openstack") in added
    assert ("ClusterRole", "pileus-csi-controller:csi-snapshotter") in added
    names = [
        each["name"] for each in pod(with_["Deployment", "pileus-csi-controller"])["containers"]
    ]
    assert names[-1] == "csi-snapshotter"


def test_the_volume_controller_needs_only_the_node_plugin():
    found = printed("--csi", "--csi-without-sidecars")

    assert ("DaemonSet", "pileus-csi-node") in found
    assert ("CSIDriver", "openstack.csi.pileus.dev") in found
    assert ("Deployment", "pileus-csi-controller") not in found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--csi-snapshots"], "--csi-snapshots needs --csi"),
        (["--kubelet-dir=/x"], "--kubelet-dir needs --csi"),
        (["--csi", "--kubelet-dir=x"], '--kubelet-dir: "x" is not an absolute path'),
        (["--csi", "--csi-snapshots", "--csi-without-sidecars"], "exclude each other"),
        (["--csi", "--external"], "the controller part runs in a pod"),
        (["--csii"], "did you mean --csi?"),
    ],
)
def test_wrong_flags_are_explained(arguments: list[str], words: str):
    code, _, err = call(*arguments)

    assert (code, words in err) == (1, True), err


def test_monitoring_opens_the_ports_of_the_metrics_and_lets_prometheus_find_them():
    found = printed("--csi", "--monitoring=service", "--monitoring-labels=release=prom")

    for kind, name in (
        ("Deployment", "pileus-csi-controller"),
        ("DaemonSet", "pileus-csi-node"),
    ):
        template = found[kind, name]["spec"]["template"]
        driver = template["spec"]["containers"][0]
        port = METRICS_PORTS[name]
        assert f"--http-endpoint=:{port}" in driver["args"]
        monitor = found["PodMonitor", name]
        assert monitor["metadata"]["labels"]["release"] == "prom"
        selected = monitor["spec"]["selector"]["matchLabels"]
        assert selected.items() <= template["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["relabelings"][0]["replacement"] == f"$1:{port}"


def test_kubelets_probe_the_driver_on_the_port_that_it_opens():
    for flags in ((), ("--monitoring=pod",)):
        found = printed("--csi", *flags)
        for key in (("Deployment", "pileus-csi-controller"), ("DaemonSet", "pileus-csi-node")):
            driver = pod(found[key])["containers"][0]
            (flag,) = (each for each in driver["args"] if each.startswith("--http-endpoint="))
            ports = {
                driver[name]["httpGet"]["port"] for name in ("livenessProbe", "readinessProbe")
            }
            assert ports == {int(flag.rpartition(":")[2])}


def test_without_monitoring_only_the_node_reaches_the_port():
    found = printed("--csi")

    assert not [kind for kind, _ in found if kind == "PodMonitor"]
    for key in (("Deployment", "pileus-csi-controller"), ("DaemonSet", "pileus-csi-node")):
        arguments = pod(found[key])["containers"][0]["args"]
        (flag,) = (each for each in arguments if "http-endpoint" in each)
        assert flag.startswith("--http-endpoint=127.0.0.1:")


def test_without_sidecars_only_the_nodes_are_monitored():
    found = printed("--csi", "--csi-without-sidecars", "--monitoring=pod")

    monitors = {name for kind, name in found if kind == "PodMonitor" and "csi" in name}
    assert monitors == {"pileus-csi-node"}


NODE = "--csi-node-image=registry.example/node:1"
WITHOUT_EXTRA = [
    pytest.param(("--csi",), id="all"),
    pytest.param(("--csi", NODE), id="controller"),
    pytest.param(("--csi", "--csi-without-sidecars"), id="nodes"),
]


@pytest.mark.parametrize("arguments", WITHOUT_EXTRA)
def test_an_image_without_the_driver_is_a_warning_with_the_fix(arguments: tuple[str, ...]):
    code, out, err = call(*arguments)

    assert code == 0
    assert out
    assert err.startswith("Warning: --csi without --image: ")
    assert "Fix: make image EXTRAS=csi IMAGE=REGISTRY/pileus:TAG" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("--csi", "--csi-without-sidecars", NODE), (), ("--csi", f"--image={IMAGE}")]
)
def test_an_image_with_the_driver_needs_no_warning(arguments: tuple[str, ...]):
    code, _, err = call(*arguments)

    assert (code, err) == (0, "")
