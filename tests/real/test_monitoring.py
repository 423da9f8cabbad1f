"""The accounts that the monitors use read the metrics of a manager, and nothing else."""

import contextlib
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml
from tools import operator_crds

from pileus.deployment.monitoring import PATHS
from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.real.manager import Lab, Manager, running
from tests.unit.cli.test_manifests import LOCAL, printed

KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Service", "ConfigMap"}
READERS = {
    "service": ("--monitoring=service", "--prometheus-account=kube-system/prometheus"),
    "pod": ("--monitoring=pod",),
}


def kubectl(cluster: ControlPlane, *arguments: str, text: str = "") -> str:
    program = str(Path(os.environ["PILEUS_CONTROL_PLANE"]) / "kubectl")
    command = [program, f"--kubeconfig={cluster.admin}", "--namespace=kube-system", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane) -> Generator[None]:
    """The kinds of the Prometheus operator."""
    folder = operator_crds.folder()
    if folder is None:
        pytest.skip("the module of the Prometheus operator cannot be downloaded")
    kinds = ("podmonitors", "prometheusrules", "servicemonitors")
    files = [f"--filename={folder / f'monitoring.coreos.com_{kind}.yaml'}" for kind in kinds]
    kubectl(control_plane, "apply", "--server-side", *files)
    established = ("wait", "--for=condition=Established", "--timeout=60s")
    kubectl(control_plane, *established, *files)
    yield
    kubectl(control_plane, "delete", *files)


@pytest.mark.parametrize("flags", READERS.values(), ids=READERS)
@pytest.mark.usefixtures("operator")
def test_the_operator_knows_every_field_of_its_objects(clean: ControlPlane, flags: tuple[str, ...]):
    labels = "--monitoring-labels=release=prometheus"
    text = yaml.safe_dump_all(printed(LOCAL, *flags, labels))

    checked = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f-")
    made = kubectl(clean, *checked, text=text)

    kind = flags[0].partition("=")[2]
    assert f"{kind}monitor.monitoring.coreos.com/pileus-cloud-controller-manager" in made
    assert "prometheusrule.monitoring.coreos.com/pileus-cloud-controller-manager" in made
    with pytest.raises(AssertionError, match="unknown field|field not declared"):
        kubectl(clean, *checked, text=text.replace("scheme: https", "schema: https"))


@contextlib.contextmanager
def reader(cluster: ControlPlane, *flags: str) -> Generator[str]:
    """Yields the token of the account that reads the metrics, with the objects that it needs."""
    kind = "PodMonitor" if "--monitoring=pod" in flags else "ServiceMonitor"
    found = printed(LOCAL, *flags)
    assert kind in {each["kind"] for each in found}
    monitoring = [each for each in found if "metrics" in str(each["metadata"])]
    objects = [each for each in monitoring if each["kind"] in KINDS]
    (account,) = (
        each["subjects"][0]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"
    )
    text = yaml.safe_dump_all(objects)
    kubectl(cluster, "apply", "--filename=-", text=text)
    try:
        if kind == "ServiceMonitor":
            kubectl(cluster, "create", "serviceaccount", account)
        yield kubectl(cluster, "create", "token", account)
    finally:
        kubectl(cluster, "delete", "--ignore-not-found", "--filename=-", text=text)
        kubectl(cluster, "delete", "--ignore-not-found", "serviceaccount", account)


def answer_to(cluster: ControlPlane, token: str, verb: str, resource: str) -> str:
    """Whether the owner of the token may do that, as the API server says."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    asked = {"verb": verb, "resource": resource, "namespace": "kube-system"}
    body = review | {"spec": {"resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = Api.of_kubeconfig(cluster.admin).bearing(token).post(path, body)
    return "yes" if answer.body["status"]["allowed"] else "no"


def status(manager: Manager, path: str, token: str) -> int:
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    url = f"https://127.0.0.1:{manager.port}{path}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("flags", READERS.values(), ids=READERS)
def test_a_reader_of_metrics_reads_them_and_nothing_else(
    clean: ControlPlane, lab: Lab, flags: tuple[str, ...]
):
    with running(clean, lab) as manager, reader(clean, *flags) as token:
        manager.wait_leading()

        assert [status(manager, path, token) for path in PATHS] == [200, 200]
        for path in ("/configz", "/debug/stacks", "/readyz/informers-synced"):
            assert status(manager, path, token) == 403, path
        assert status(manager, PATHS[0], "wrong") == 401
        for verb, resource in (("get", "secrets"), ("list", "pods"), ("patch", "nodes")):
            assert answer_to(clean, token, verb, resource) == "no"
