"""Guards of the OpenStack load balancers: whose they are, and whether a change was completed."""

from tests.mutants.mutant import Danger, Mutant

_TAKEOVER = "providers/openstack/test_balancer_takeover.py"
_SHARING = "providers/openstack/test_balancer_sharing.py"
_ERRORS = "providers/openstack/test_balancer_errors.py"
_CHANGES = "providers/openstack/test_balancer_changes.py"
_COST = "providers/openstack/test_balancer_cost.py"

OPENSTACK_BALANCERS = (
    Mutant(
        name="a load balancer with only foreign members is taken over",
        module="providers.openstack.ownership",
        before="if self.members and not self.members & ours:",
        after="if False:",
        tests=_TAKEOVER,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="the name of a load balancer is proof enough",
        module="providers.openstack.ownership",
        before="if self.balancer.id == wish.adopts or published & self.addresses:",
        after="if True:",
        tests=_TAKEOVER,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="a load balancer of the same name in doubt is created again",
        module="providers.openstack.balancer_plan",
        before="if seen.ambiguous:",
        after="if False:",
        tests=_TAKEOVER,
    ),
    Mutant(
        name="a load balancer that others use is deleted",
        module="providers.openstack.balancer_plan",
        before=" and not others and len(go_tags(balancer.tags)) <= 1",
        after="",
        tests=_SHARING,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="a load balancer of the user is deleted",
        module="providers.openstack.balancer_plan",
        before="was_created_for_services(balancer) and not others",
        after="not others",
        tests=_SHARING,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="every listener of a shared load balancer is ours",
        module="providers.openstack.ownership",
        before="return is_stale and cluster_of(listener.tags) == owner.cluster",
        after="return True",
        tests=_SHARING,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="a listener of the user is taken",
        module="providers.openstack.port_plan",
        before="return untagged <= self.desired.by_port.keys()",
        after="return True",
        tests=_SHARING,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="tags of other Services are overwritten",
        module="providers.openstack.balancers",
        before="kept = [tag for tag in current.tags if tag not in {*step.drop, *step.add}]",
        after="kept = list[str]()",
        tests=_SHARING,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="a load balancer that fails after years is deleted",
        module="providers.openstack.balancer_plan",
        before="if not seen.was_complete:",
        after="if True:",
        tests=_ERRORS,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="weights of administrators are reset",
        module="providers.openstack.draining",
        before="weight = 1 if is_draining(member) else member.weight",
        after="weight = 1",
        tests=_CHANGES,
    ),
    Mutant(
        name="a stamp is written after each change",
        module="providers.openstack.balancer_plan",
        before="or seen.parts is None or not seen.is_full:",
        after="or seen.parts is None:",
        tests=_COST,
    ),
)
