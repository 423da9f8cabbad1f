"""All mutants: one guard removed on one path each."""

from tests.mutants.foundation_mutants import CLOUD_AND_KUBE, HOSTILE, RUNTIME
from tests.mutants.node_mutants import IPAM_AND_KEYS, LIFECYCLE, NODE, ROUTE
from tests.mutants.openstack_balancer_mutants import OPENSTACK_BALANCERS
from tests.mutants.openstack_mutants import OPENSTACK
from tests.mutants.service_mutants import SERVICE
from tests.mutants.volume_mutants import VOLUMES

MUTANTS = (
    *LIFECYCLE,
    *NODE,
    *SERVICE,
    *ROUTE,
    *IPAM_AND_KEYS,
    *RUNTIME,
    *CLOUD_AND_KUBE,
    *HOSTILE,
    *OPENSTACK,
    *OPENSTACK_BALANCERS,
    *VOLUMES,
)

FOR_SIMULATION = (*HOSTILE, *OPENSTACK, *OPENSTACK_BALANCERS, *VOLUMES)
"""Those of which the simulation alone must see half: tenants, OpenStack, hostile input, volumes."""
