"""Settings of the cluster as a whole, which several controllers use."""

from collections.abc import Iterator, Mapping

from pileus.dataclass import dataclass
from pileus.objects.ranges import host_bit_warnings, parse_ranges, unread_warnings
from pileus.settings.declare import setting
from pileus.settings.kinds import STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The cluster's names in the cloud, and its pod CIDRs."""

    name: str = setting(
        "cluster-name",
        STRING,
        "kubernetes",
        "Name of the cluster in the cloud; must not change after installation.",
        section="Generic",
        configz="KubeCloudShared.ClusterName",
    )
    id: str = setting(
        "cluster-id",
        STRING,
        "",
        "ID in the tags of this cluster's cloud resources; empty: the UID of kube-system. "
        "Must not change after installation.",
        details="Resources with another ID are not touched.",
        section="Pileus: services",
    )
    """Empty: the UID of the namespace kube-system."""
    cidr: str = setting(
        "cluster-cidr",
        STRING,
        "",
        "CIDR of pods, or a comma-separated pair of families.",
        section="Generic",
        configz="KubeCloudShared.ClusterCIDR",
    )

    def warnings(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        yield from unread_warnings(self.malformed())
        yield from host_bit_warnings("--cluster-cidr", self.cidr)

    def malformed(self) -> Iterator[str]:
        """Yields what is wrong with the CIDRs. It matters to controllers that read them."""
        try:
            parse_ranges(self.cidr) if self.cidr else ()
        except ValueError as error:
            yield f"--cluster-cidr: {error}"
