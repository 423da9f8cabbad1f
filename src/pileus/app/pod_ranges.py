"""What the flags ask for as pod ranges, for who checks them and for who gives them out."""

from pileus.app.config import Config
from pileus.controllers.ipam.sizes import Asked


def asked_of(config: Config) -> Asked:
    """The flags about pod ranges."""
    return Asked(
        cluster_cidr=config.shared.cluster_cidr,
        service_range=config.ipam.service_cluster_ip_range,
        mask_size=config.ipam.node_cidr_mask_size,
        mask_size_ipv4=config.ipam.node_cidr_mask_size_ipv4,
        mask_size_ipv6=config.ipam.node_cidr_mask_size_ipv6,
        allocator=config.shared.cidr_allocator_type,
    )
