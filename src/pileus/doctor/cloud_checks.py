"""Checks of the cluster ID and of each selected cloud. Pure."""

from collections.abc import Iterator

from pileus.cloud.finding import Finding
from pileus.doctor.check import Verdict, counted, error, listed, warning
from pileus.doctor.observation import CloudState, Observation, known

NO_CLOUD = "not checked: --cloud-provider is not set"


def cluster_id(seen: Observation) -> Verdict:
    """The ID with which resources in the cloud are tagged."""
    given = seen.expected.cluster_id
    if given:
        return Verdict(f"{given} (--cluster-id)")
    return Verdict(f"{known(seen.cluster_id)} (UID of namespace kube-system)")


def clouds(seen: Observation) -> Verdict:
    """Whether each cloud can be used, and what its provider finds."""
    if not seen.clouds:
        return Verdict(NO_CLOUD, is_skipped=True)
    findings = tuple(finding for cloud in seen.clouds for finding in _findings(cloud))
    return Verdict("; ".join(map(_summary, seen.clouds)), findings)


def _summary(cloud: CloudState) -> str:
    asked = f"; {counted(cloud.asked, 'node')} looked up" if cloud.asked else ""
    checked = "" if cloud.has_checks else "; its provider has no checks of its own"
    return f"{cloud.name} answers{asked}{checked}"


def _findings(cloud: CloudState) -> Iterator[Finding]:
    subject = f"cloud {cloud.name}"
    if cloud.problem:
        yield error(
            "cloud-unusable",
            subject,
            cloud.problem,
            reason="the manager cannot look up machines or change load balancers",
            fix="fix what the message names: --cloud-provider, --cloud-config, or the credentials",
        )
    if not cloud.has_cluster_id:
        yield error(
            "cloud-without-cluster-id",
            subject,
            "its resources are not tagged with a cluster ID",
            reason="the manager exits unless --allow-untagged-cloud is set",
            fix="tag the resources of the cluster as the provider's documentation describes",
        )
    yield from cloud.findings
    if cloud.absent:
        yield warning(
            "machine-missing",
            subject,
            f"has no machine for ready nodes: {listed(cloud.absent)}",
            reason="the credentials are for another project or region, or the machines were "
            "deleted. The manager deletes such nodes once they are not ready",
            fix=f"pileus explain node {min(cloud.absent)}",
        )
