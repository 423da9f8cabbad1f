"""What is remembered of objects ends with them, and no map escapes the rule."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pileus
from pileus.kube.model.core_v1 import Node
from pileus.kube.model.meta import ObjectMeta
from pileus.runtime.memory import LINGER, ForgetsDeleted, PerObject, remembering
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics

SOURCE = Path(pileus.__file__).parent
ROOMS = ("runtime", "objects", "controllers", "classic")
MAPS = {"dict", "set", "OrderedDict", "defaultdict"}


def new_metrics() -> Metrics:
    return Metrics(MetricRegistry())


async def test_what_is_remembered_ends_a_while_after_the_object() -> None:
    with remembering(new_metrics()) as memories:
        ends = PerObject[str, int]("objects/ends", ends_with_object=True)
        stays = PerObject[str, int]("objects/stays")
        handler = ForgetsDeleted()
    ends["u1"] = ends["u2"] = stays["u1"] = 1

    handler.deleted(Node(metadata=ObjectMeta(name="n", uid="u1")))
    await asyncio.sleep(LINGER - 1)
    assert memories.sizes() == {"objects/ends": 2, "objects/stays": 1}
    await asyncio.sleep(2)

    assert memories.sizes() == {"objects/ends": 1, "objects/stays": 1}


async def test_an_object_that_one_view_lost_and_that_is_back_is_not_forgotten() -> None:
    with remembering(new_metrics()) as memories:
        ends = PerObject[str, int]("objects/ends", ends_with_object=True)
        handler = ForgetsDeleted()
    ends["u1"] = 1
    node = Node(metadata=ObjectMeta(name="n", uid="u1"))

    handler.deleted(node)
    await asyncio.sleep(LINGER - 1)
    handler.added(node)
    await asyncio.sleep(2 * LINGER)
    assert memories.sizes() == {"objects/ends": 1}

    handler.deleted(node)
    await asyncio.sleep(LINGER + 1)
    assert memories.sizes() == {"objects/ends": 0}


def test_each_map_is_counted_and_of_several_the_longest() -> None:
    metrics = new_metrics()
    with remembering(metrics):
        one, other = PerObject[str, int]("nodes/x"), PerObject[str, int]("nodes/x")
    one["a"] = other["b"] = other["c"] = 1

    labels = {"memory": "nodes/x"}
    assert metrics.registry.value("pileus_remembered_objects", labels) == 2


def test_outside_of_a_process_a_map_is_just_a_map() -> None:
    alone = PerObject[str, int]("nodes/x")
    alone["a"] = 1

    alone.keep(set())

    assert alone == {}


# -- every map of the product's rooms ----------------------------------------------------------

SHORT = "ends with the pass, round, call or timer that made it"
BOUNDED = "has a limit of its own"
FIXED = "as many entries as the program has places for it"
COUNTED = "counted by a metric of its own, which the simulation checks"
IN_THE_CLOUD = "what may exist in the cloud, and is known from nothing else"
KEPT = "pruned in each round to the objects that exist"

EXEMPT = {
    "classic/adapter.py:CAPABILITIES": FIXED,
    "classic/calls.py:Calls._logged": FIXED,
    "classic/service_records.py:ProcessMemory._forgotten": BOUNDED,
    "classic/service_records.py:ProcessMemory._remembered": IN_THE_CLOUD,
    "classic/service_records.py:ProcessMemory._seen": IN_THE_CLOUD,
    "classic/interface.py:InstanceMetadata.additional_labels": SHORT,
    "classic/stop.py:Stop._tasks": FIXED,
    "controllers/ipam/allocator.py:Allocator._allocated": COUNTED,
    "controllers/ipam/allocator.py:Blocks._holders": COUNTED,
    "controllers/lifecycle/monitor.py:NodeMonitor._in_progress": SHORT,
    "controllers/lifecycle/monitor.py:NodeMonitor._reminders": SHORT,
    "controllers/lifecycle/monitor.py:NodeMonitor._woken": SHORT,
    "controllers/route/ownership.py:KnownNodes._lengths": SHORT,
    "controllers/route/ownership.py:KnownNodes.assigned": SHORT,
    "controllers/route/plan.py:_Routing._kept": SHORT,
    "controllers/route/plan.py:_Routing._replaced": SHORT,
    "controllers/route/plan.py:_Routing._table": SHORT,
    "controllers/route/record.py:Recorded.known_for": SHORT,
    "controllers/route/record.py:RouteRecord._appeared": KEPT,
    "controllers/route/record.py:RouteRecord._created": KEPT,
    "controllers/route/record.py:RouteRecord._deleted": KEPT,
    "controllers/route/record.py:RouteRecord._known": KEPT,
    "controllers/route/status.py:NodeWarnings._texts": KEPT,
    "controllers/route/status.py:Outcome.failed": SHORT,
    "controllers/route/status.py:Outcome.untried": SHORT,
    "controllers/service/members.py:Membership._sets": FIXED,
    "controllers/service/members.py:NodeList.members": FIXED,
    "controllers/service/notes.py:DeletedServices._cleaned_up": BOUNDED,
    "controllers/service/orphans.py:Sweeper._first_seen": KEPT,
    "controllers/service/observation.py:SharedLocks._locks": SHORT,
    "controllers/service/status.py:Write.annotations": SHORT,
    "controllers/ssh_keys/reconciler.py:SshKeysReconciler._unwanted_since": FIXED,
    "controllers/ssh_keys/reconciler.py:_Pass.errors": SHORT,
    "controllers/volume/reconciler.py:VolumeReconciler._failing": COUNTED,
    "controllers/volume/sweep.py:Sweeper._first_seen": KEPT,
    "objects/nodes.py:ADDRESS_TYPES": FIXED,
    "objects/ownership.py:IgnoredNodes._names": COUNTED,
    "runtime/events.py:EventRecorder._tries": COUNTED,
    "runtime/events.py:EventRecorder._unwritten": COUNTED,
    "runtime/events.py:RecentlyUsed._values": BOUNDED,
    "runtime/informers.py:Informers._made": FIXED,
    "runtime/memory.py:ForgetsDeleted._timers": SHORT,
    "runtime/memory.py:Memories._maps": FIXED,
    "runtime/queue.py:WorkQueue._again": COUNTED,
    "runtime/queue.py:WorkQueue._held": COUNTED,
    "runtime/queue.py:WorkQueue._next": COUNTED,
    "runtime/queue.py:WorkQueue._pauses": COUNTED,
    "runtime/queue.py:WorkQueue._timers": COUNTED,
    "runtime/queue.py:WorkQueue._lines": COUNTED,
}


def maps() -> Iterator[str]:
    """Every map or set that an object or a module keeps, as file:Class.attribute."""
    for path in sorted(path for room in ROOMS for path in (SOURCE / room).rglob("*.py")):
        tree, where = ast.parse(path.read_text()), path.relative_to(SOURCE)
        yield from (f"{where}:{name}" for name in _of_module(tree))
        for one in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
            yield from (f"{where}:{one.name}.{name}" for name in _of_class(one))


def _of_module(tree: ast.Module) -> Iterator[str]:
    for part in tree.body:
        if isinstance(part, ast.Assign | ast.AnnAssign) and _is_map(part.value, part):
            target = part.targets[0] if isinstance(part, ast.Assign) else part.target
            if isinstance(target, ast.Name):
                yield target.id


def _of_class(one: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(one):
        if not isinstance(part, ast.Assign | ast.AnnAssign) or not _is_map(part.value, part):
            continue
        match part.targets[0] if isinstance(part, ast.Assign) else part.target:
            case ast.Attribute(value=ast.Name("self"), attr=name):
                yield name
            case ast.Name(name) if part in one.body:
                yield name
            case _:
                pass


def _is_map(value: ast.expr | None, where: ast.Assign | ast.AnnAssign) -> bool:
    """Whether it begins empty and may grow."""
    match value:
        case ast.Dict(keys=[]) | ast.DictComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name("field"), keywords=keywords):
            made = [each.value for each in keywords if each.arg == "default_factory"]
            return any(_name(each) in MAPS for each in made)
        case ast.Call(func=func, args=[]):
            return _name(func) in MAPS
        case _:
            return False


def _name(expression: ast.expr) -> str:
    base = expression.value if isinstance(expression, ast.Subscript) else expression
    return base.id if isinstance(base, ast.Name) else ""


def test_every_map_is_per_object_or_says_why_not() -> None:
    """A new map of objects is a `PerObject`; of anything else, add it here with the reason."""
    assert sorted(set(maps())) == sorted(EXEMPT)
