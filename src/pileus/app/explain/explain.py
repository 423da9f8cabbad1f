"""Reads cluster, cloud and plan for one object, and combines them into its explanation."""

from dataclasses import replace

from pileus.app.clouds import Clouds
from pileus.app.context import ManagerContext
from pileus.app.errors import Fatal
from pileus.app.explain.cluster_messages import leader, warnings_about
from pileus.app.explain.explanation import Explanation
from pileus.app.explain.node import Findings, explain_node, machine_of
from pileus.app.explain.service import (
    Side,
    cloud_side,
    explain_service,
    served_before,
    serves,
    side_without_cloud,
)
from pileus.app.explain.volume import (
    VolumeObject,
    explain_volume,
    is_served,
    objects_of,
    volume_side,
)
from pileus.app.plan import Plan, Planner, failing_if_unreadable
from pileus.controllers.service.events import about_service
from pileus.controllers.volume.cluster import Cluster
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import (
    NODES,
    SERVICES,
    Node,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Service,
)
from pileus.kube.model.meta import KubeObject
from pileus.kube.model.storage_v1 import VolumeAttachment
from pileus.objects.nodes import about_node, provider_id_of
from pileus.objects.preview import Scope
from pileus.runtime.informers import UID_INDEX


@dataclass(frozen=True, slots=True)
class _Cloud:
    """The cloud of an object."""

    context: ManagerContext
    problem: str = ""
    """Why the cloud cannot be asked."""
    others: tuple[str, ...] = ()
    """The names of the manager's other clouds."""

    def part_of(self, plan: Plan) -> Plan:
        """Returns the plan without failures of other clouds: they do not concern the object."""
        theirs = {f"cloud {name}" for name in self.others}
        ends = tuple(f"@{name}" for name in self.others)
        kept = {
            name: why
            for name, why in plan.failures.items()
            if name not in theirs and not name.endswith(ends)
        }
        return replace(plan, failures=kept)


def _cloud_of(context: ManagerContext, owner: str | None) -> _Cloud:
    """Returns the cloud of this name, connected or not; the default one if it is empty.

    Raises Fatal if no cloud is connected.
    """
    clouds = context.clouds
    if clouds is None:
        return _Cloud(context)
    if not clouds.contexts():
        problems = "; ".join(slot.problem() or "" for slot in clouds.slots)
        raise Fatal(f"Cloud provider could not be initialized: {problems}")
    slots = {slot.name: slot for slot in clouds.slots}
    named = owner or clouds.nodes.caretaker
    others = tuple(name for name in slots if name != named)
    return _Cloud(slots[named].context_now(), slots[named].problem() or "", others)


def _serving(clouds: Clouds, service: Service) -> str:
    """Returns the cloud that serves the Service, or else the one that last did; "" if none."""
    contexts = [slot.context_now() for slot in clouds.slots]
    serving = (each.scope.name for each in contexts if serves(each, service))
    former = (each.scope.name for each in contexts if served_before(each, service))
    return next(serving, next(former, ""))


async def explain(context: ManagerContext, thing: KubeObject, scope: Scope) -> Explanation:
    """Returns the explanation of `thing`. Raises Fatal if the cluster cannot be read."""
    plan = await Planner(context).plan(scope)
    match thing:
        case Node():
            cloud = _cloud_of(context, context.clouds and context.clouds.nodes.owner(thing))
            around = await _findings(context, cloud, plan, about_node(thing))
            machine = await machine_of(cloud.context, thing)
            explained = explain_node(cloud.context, thing, machine, around)
            return _with_claims(explained, context.clouds, thing)
        case Service():
            cloud = _cloud_of(context, context.clouds and _serving(context.clouds, thing))
            around = await _findings(context, cloud, plan, about_service(thing))
            return await _service(context, cloud, thing, around)
        case PersistentVolumeClaim() | PersistentVolume() | VolumeAttachment():
            return await _volume(context, thing, plan)
        case _:
            raise TypeError(f"no explanation for a {type(thing).__name__}")


async def _findings(
    context: ManagerContext,
    cloud: _Cloud,
    plan: Plan,
    about: ObjectReference,
    *,
    from_others: bool = False,
) -> Findings:
    client = context.clients.main("explain")
    return Findings(
        plan=cloud.part_of(plan),
        warnings=await warnings_about(client, about, from_others=from_others),
        leader=await leader(client, context.config, context.clock.now()),
    )


async def _service(
    context: ManagerContext, cloud: _Cloud, service: Service, around: Findings
) -> Explanation:
    nodes = context.informers.of(NODES)
    async with failing_if_unreadable(context):
        await nodes.wait_synced()
        await context.informers.of(SERVICES, UID_INDEX).wait_synced()
    known = sorted(nodes.store.list(), key=lambda each: each.metadata.name)
    side = await _side(cloud, service, known)
    return explain_service(cloud.context, service, known, side, around)


async def _volume(context: ManagerContext, thing: VolumeObject, plan: Plan) -> Explanation:
    cluster = Cluster(context.clients.main("explain"), context.informers)
    async with failing_if_unreadable(context):
        await cluster.wait_synced()
    objects = objects_of(cluster, thing)
    slots = context.clouds.slots if context.clouds else ()
    serving = (slot.name for slot in slots if is_served(slot.context_now(), objects))
    cloud = _cloud_of(context, next(serving, ""))
    # CSI sidecars, the kubelet and kube-controller-manager report on these objects, too.
    around = await _findings(context, cloud, plan, objects.about, from_others=True)
    side = await volume_side(cloud.context, objects, cloud.problem)
    return explain_volume(cloud.context, objects, side, around)


async def _side(cloud: _Cloud, service: Service, nodes: list[Node]) -> Side:
    if cloud.problem:
        return side_without_cloud(cloud.context, service, nodes, cloud.problem)
    return await cloud_side(cloud.context, service, nodes)


def _with_claims(explanation: Explanation, clouds: Clouds | None, node: Node) -> Explanation:
    """Returns the explanation; of a node that belongs to none of several clouds, it says why."""
    if clouds is None or clouds.nodes.owner(node):
        return explanation
    found, every = clouds.nodes.claim(node), ", ".join(slot.name for slot in clouds.slots)
    if found.contested:
        owner = f"no cloud: {', '.join(found.contested)} all claim the node"
    elif found.candidates:
        owner = f"no cloud yet: only lookups in {', '.join(found.candidates)} can tell"
    else:
        owner = f"another cloud: none of {every} owns {provider_id_of(node)}"
    return replace(
        explanation,
        is_ours=bool(found.contested or found.candidates),
        desired=(f"unknown, the node belongs to none of the clouds {every}",),
        owner=(owner,),
    )
