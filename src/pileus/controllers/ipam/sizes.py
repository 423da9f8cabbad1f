"""How a cluster's pod ranges are cut into those of its nodes, as the flags say. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pileus.objects.ranges import Range, parse_ranges

ALLOCATOR = "RangeAllocator"
USUAL = {4: 24, 6: 64}
LONGEST = {4: 32, 6: 128}
MOST_BITS = {4: 24, 6: 16}
"""How much longer than the cluster's a node's prefix may be: so many ranges are kept track of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags; 0 and "" where they were not given."""

    cluster_cidr: str
    service_range: str = ""
    mask_size: int = 0
    mask_size_ipv4: int = 0
    mask_size_ipv6: int = 0
    allocator: str = ALLOCATOR

    def mask_of(self, version: int) -> int:
        own = self.mask_size_ipv4 if version == 4 else self.mask_size_ipv6  # noqa: PLR2004 -- IPv4
        return own or self.mask_size or USUAL[version]


@dataclass(frozen=True, slots=True)
class Pool:
    """One of the cluster's ranges, and the prefix length of its parts."""

    range: Range
    mask: int


@dataclass(frozen=True, slots=True)
class Sizes:
    pools: tuple[Pool, ...]
    """In the order of `--cluster-cidr`: nodes get their ranges in it."""
    services: tuple[Range, ...] = ()
    """Kept out of the nodes' ranges."""


def sizes(asked: Asked) -> Sizes:
    """Errors: `ValueError`, if `problems` finds any."""
    found = problems(asked)
    if found:
        raise ValueError(", ".join(found))
    ranges = parse_ranges(asked.cluster_cidr)
    services = parse_ranges(asked.service_range) if asked.service_range else ()
    return Sizes(tuple(Pool(each, asked.mask_of(each.version)) for each in ranges), services)


def problems(asked: Asked) -> tuple[str, ...]:
    """What is wrong with the flags, each with its name; empty if nothing is."""
    return tuple(_problems(asked))


def _problems(asked: Asked) -> Iterator[str]:
    if asked.allocator != ALLOCATOR:
        yield (
            f'--cidr-allocator-type: "{asked.allocator}" is not possible (any more); '
            f"the only one is {ALLOCATOR}"
        )
    if asked.service_range:
        try:
            parse_ranges(asked.service_range)
        except ValueError as error:
            yield f"--service-cluster-ip-range: {error}"
    try:
        ranges = parse_ranges(asked.cluster_cidr)
    except ValueError as error:
        yield f"--cluster-cidr: {error}"
        return
    contradictions = tuple(_contradictions(asked, {each.version for each in ranges}))
    yield from contradictions
    for each in () if contradictions else ranges:
        yield from _misfits(each, asked.mask_of(each.version))


def _contradictions(asked: Asked, versions: set[int]) -> Iterator[str]:
    if len(versions) > 1 and asked.mask_size:
        yield (
            "--node-cidr-mask-size is for clusters of one family; with two, use "
            "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
        )
    of_families = {4: asked.mask_size_ipv4, 6: asked.mask_size_ipv6}
    if len(versions) == 1 and asked.mask_size and any(of_families.values()):
        yield "--node-cidr-mask-size and those of a family exclude each other"
    for version, size in of_families.items():
        if size and version not in versions:
            yield f"--node-cidr-mask-size-ipv{version}: --cluster-cidr has no IPv{version} range"


def _misfits(cluster: Range, mask: int) -> Iterator[str]:
    version = cluster.version
    if mask > LONGEST[version]:
        yield f"node CIDRs of /{mask} are not possible: IPv{version} ends at /{LONGEST[version]}"
    elif mask < cluster.prefixlen:
        yield f"node CIDRs of /{mask} do not fit into {cluster}: give a longer mask size"
    elif mask - cluster.prefixlen > MOST_BITS[version]:
        yield (
            f"node CIDR size is too big: {cluster} has more than 2^{MOST_BITS[version]} parts of "
            f"/{mask}; give a mask size of at most {cluster.prefixlen + MOST_BITS[version]}"
        )
