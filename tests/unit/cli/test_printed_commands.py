"""Commands that are printed reach the cluster and the cloud that were looked at."""

import pytest

from pileus.app.settings import TABLE
from pileus.cli.cluster_command import CONTEXT
from pileus.cli.printed_commands import NOWHERE, Target, target_of
from pileus.settings.flags import Group, Table
from pileus.settings.sources import gather

FLAGS = ("--cloud-provider=lab", "--cluster-name=a shop's")
WRITTEN = "--cloud-provider=lab '--cluster-name=a shop'\"'\"'s'"
THERE = Target(cluster=("/k", "prod", ""), flags=FLAGS, more=("--cluster-id=c",))
CLUSTER = "--kubeconfig=/k --context=prod"
HELM = "--kubeconfig=/k --kube-context=prod"
POD = Target(pod="kubectl exec deployment/ccm -- … --v=4")
APPLY = "pileus manifests --v=2 | kubectl {c}apply -f - && helm {h}get manifest x"


@pytest.mark.parametrize(
    ("target", "before", "after"),
    [
        (THERE, APPLY.format(c="", h=""), APPLY.format(c=f"{CLUSTER} ", h=f"{HELM} ")),
        (THERE, "edit it   # then: kubectl get a", f"edit it   # then: kubectl {CLUSTER} get a"),
        (
            THERE,
            "pileus explain pv x   # restore it",
            f"pileus explain pv x {CLUSTER} {WRITTEN} --cluster-id=c   # restore it",
        ),
        (THERE, "fix it: pileus doctor", f"fix it: pileus doctor {CLUSTER} {WRITTEN}"),
        (
            Target(flags=("--v=4", "--cloud-provider=lab")),
            "pileus plan --cloud-provider=x && pileus orphans",
            "pileus plan --cloud-provider=x --v=4 && pileus orphans --v=4 --cloud-provider=lab",
        ),
        (
            Target(cluster=("", "", "https://a")),
            "kubectl get x",
            "kubectl --server=https://a get x",
        ),
        (POD, "pileus plan   # x", "kubectl exec deployment/ccm -- pileus plan --v=4   # x"),
        (POD, "pileus doctor", "pileus doctor"),
        (THERE, "delete it with kubectl, or wait", "delete it with kubectl, or wait"),
        (THERE, "edit /etc/kubectl x and pileus plans", "edit /etc/kubectl x and pileus plans"),
        (NOWHERE, "kubectl get x && pileus plan", "kubectl get x && pileus plan"),
    ],
)
def test_a_printed_command_names_the_cluster_and_the_flags(target: Target, before: str, after: str):
    assert target.aimed(before) == after


def target(*line: str, environment: dict[str, str] | None = None) -> Target:
    table = Table((Group("", (CONTEXT,)), *TABLE.groups))
    values = gather(table, "pileus doctor", line, environment or {}).values
    return target_of(values, ("--cluster-name=b", "--cluster-id=c"), "kubectl exec … x")


def test_what_the_shell_has_anyway_is_not_repeated():
    given = target("--cluster-name=a", "-v=3", environment={"PILEUS_CLOUD_PROVIDER": "lab"})

    assert given == Target(flags=("--cluster-name=a",), more=("--cluster-id=c",))


def test_without_a_provider_the_command_runs_in_a_pod():
    assert target("--context=prod", "--kubeconfig=k") == Target(
        cluster=("k", "prod", ""),
        more=("--cluster-name=b", "--cluster-id=c"),
        pod="kubectl exec … x",
    )
