"""Measures how hard the code is to follow: files, lines, and the way of one pass through them.

    python -m tools.measure_structure            # this tree
    python -m tools.measure_structure --json

Files and lines are counted in the product (`src/pileus`) and in the laboratory. The way of a pass
is recorded from a real run: the manager in the simulation's scenario `calm`, seed 1, which has
neither faults nor crashes. For each task that runs a pass of the Service or the node controller,
the tool counts

- files: product files with at least one function that the pass called,
- hops: distinct calls from a function in one product file to a function in another,
- frames: the depth of the stack at the provider's `apply` (Services) or `find` (nodes), from the
  first frame of its task.

The medians over all passes that called the provider's method are printed. The tool also runs on the
tree before product and laboratory were separated, so that both can be compared.
"""

import argparse
import ast
import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PRODUCT, LABORATORY = ROOT / "src" / "pileus", ROOT / "lab" / "src" / "pileus_lab"
FORMER_LABORATORY = ("apiserver", "demo", "simulation", "node_agents", "providers/local")
SEED, SCENARIO = 1, "calm"
PASSES = {"service": "service-lb-controller/", "node": "cloud-node-controller/"}
"""The beginning of the names of tasks that run a pass."""
METHODS = {"service": "apply", "node": "find"}
"""The provider's methods at which the depth of the stack is measured."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one distribution."""

    files: int
    lines: int
    median: float
    with_one_importer: int


@dataclass(frozen=True, slots=True)
class Way:
    """The way of one kind of pass, as medians over `passes` passes."""

    passes: int
    files: float
    hops: float
    frames: float


@dataclass(slots=True)
class Trace:
    """What one task did so far."""

    files: set[str] = field(default_factory=set[str])
    hops: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    frames: int = 0


def is_laboratory(path: Path) -> bool:
    if path.is_relative_to(LABORATORY):
        return True
    return any(path.is_relative_to(PRODUCT / each) for each in FORMER_LABORATORY)


def sources() -> dict[str, list[Path]]:
    """Returns the files of the product and of the laboratory, by distribution."""
    found: dict[str, list[Path]] = {"product": [], "laboratory": []}
    for folder in (PRODUCT, LABORATORY):
        for path in sorted(folder.rglob("*.py")):
            found["laboratory" if is_laboratory(path) else "product"].append(path)
    return found


def measure_files(paths: list[Path], importers: dict[str, set[str]]) -> Files:
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]
    modules = [module_of(path) for path in paths if path.name != "__init__.py"]
    written = [n for path, n in zip(paths, lines, strict=True) if path.name != "__init__.py"]
    return Files(
        files=len(paths),
        lines=sum(lines),
        median=median(written) if written else 0,
        with_one_importer=sum(1 for each in modules if len(importers[each]) == 1),
    )


def module_of(path: Path) -> str:
    base = LABORATORY.parent if path.is_relative_to(LABORATORY) else PRODUCT.parent
    return ".".join(path.relative_to(base).with_suffix("").parts)


def count_importers(paths: list[Path]) -> dict[str, set[str]]:
    """Returns, for each module, the modules that import it."""
    importers: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            importers[name].add(module_of(path))
    return importers


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


class Recorder:
    """A profile function that follows the tasks of passes."""

    def __init__(self) -> None:
        self.traces: dict[str, dict[int, Trace]] = {kind: {} for kind in PASSES}
        self._tasks: dict[int, asyncio.Task[object]] = {}
        """Kept, so that no two tasks have the same id."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        name = product_file(frame)
        if name is None and frame.f_code.co_name not in METHODS.values():
            return
        task = current_task()
        if task is None:
            return
        kind = next((k for k, begin in PASSES.items() if task.get_name().startswith(begin)), "")
        if kind:
            self._tasks[id(task)] = task
            trace = self.traces[kind].setdefault(id(task), Trace())
            self._follow(trace, frame, name)
        if name is None:
            self._reach(frame, task)

    def _follow(self, trace: Trace, frame: FrameType, name: str | None) -> None:
        if name is None:
            return
        trace.files.add(name)
        caller = frame.f_back
        while caller is not None and product_file(caller) is None:
            caller = caller.f_back
        origin = product_file(caller) if caller else None
        if caller and origin and origin != name:
            ends = caller.f_code.co_qualname, frame.f_code.co_qualname
            trace.hops.add((origin, ends[0], name, ends[1]))

    def _reach(self, frame: FrameType, task: "asyncio.Task[object]") -> None:
        for kind, method in METHODS.items():
            if frame.f_code.co_name != method or not is_provider(frame):
                continue
            trace = self.traces[kind].get(id(task))
            if trace is None:  # a shared call, in a task of its own
                trace = self.traces[kind].setdefault(-id(task), Trace())
                self._tasks[-id(task)] = task
            trace.frames = max(trace.frames, depth(frame))


def product_file(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    if "/src/pileus/" not in path:
        return None
    name = path.rsplit("/src/pileus/", 1)[1]
    return None if name.startswith(FORMER_LABORATORY) else name


def is_provider(frame: FrameType) -> bool:
    """Whether the function is the provider's own; the simulation's cloud is in the laboratory."""
    return "/local/" in frame.f_code.co_filename


def depth(frame: FrameType | None) -> int:
    """Returns the number of frames from the first one of the task to this one."""
    number = 0
    while frame is not None and not frame.f_code.co_filename.endswith("asyncio/events.py"):
        number += 1
        frame = frame.f_back
    return number


def current_task() -> "asyncio.Task[object] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def record() -> Recorder:
    """Runs the manager in the simulation and returns what was recorded."""
    simulation = "pileus_lab.simulation" if LABORATORY.is_dir() else "pileus.simulation"
    play, schedule, scenario, clouds = (
        import_module(f"{simulation}.{each}")
        for each in ("play", "schedule", "scenario", "clouds.loading")
    )
    recorder, drawn = Recorder(), schedule.draw(SEED, scenario.SCENARIOS[SCENARIO])
    sys.setprofile(recorder)
    try:
        play.play(drawn, clouds.load(""))
    finally:
        sys.setprofile(None)
    return recorder


def way(traces: dict[int, Trace]) -> Way:
    passes = [trace for trace in traces.values() if trace.files]
    deepest = [trace.frames for trace in traces.values() if trace.frames]
    reached = [trace for trace in passes if trace.frames] or passes  # or: looked up together
    return Way(
        passes=len(reached),
        files=median(len(trace.files) for trace in reached) if reached else 0,
        hops=median(len(trace.hops) for trace in reached) if reached else 0,
        frames=median(deepest) if deepest else 0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_json = parser.parse_args().json
    found = sources()
    importers = count_importers([*found["product"], *found["laboratory"]])
    files = {name: measure_files(paths, importers) for name, paths in found.items()}
    recorder = record()
    ways = {kind: way(traces) for kind, traces in recorder.traces.items()}
    if as_json:
        print(json.dumps({n: asdict(v) for n, v in {**files, **ways}.items()}, indent=2))
        return
    for name, each in files.items():
        print(
            f"{name}: {each.files} files, {each.lines} lines, median {each.median:g} lines, "
            f"{each.with_one_importer} modules with one importer"
        )
    for name, one in ways.items():
        print(
            f"{name} pass (median of {one.passes}): {one.files:g} files, {one.hops:g} hops, "
            f"{one.frames:g} frames at {METHODS[name]}"
        )


if __name__ == "__main__":
    main()
