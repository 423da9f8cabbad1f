"""All paths of the HTTPS port: health, metrics, `/configz`, `/version`, `/history`, `/debug`."""

import asyncio
import gc
import io
import resource
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from pileus.dataclass import dataclass
from pileus.http.messages import Request, Response
from pileus.server import responses
from pileus.server.build import Build, this_build
from pileus.server.health import Health, Slis, health_routes, sli_routes
from pileus.server.metrics import metrics_routes
from pileus.server.process_metrics import add_process_metrics
from pileus.server.router import Routes
from pileus.telemetry.metrics import Metrics

Configuration = Callable[[], object]
"""Returns the settings without secrets, as a value that msgspec can encode."""


class Configz:
    """The configurations that `/configz` shows, by API group."""

    def __init__(self) -> None:
        self._groups: dict[str, Configuration] = {}

    def add(self, group: str, configuration: Configuration) -> None:
        if group in self._groups:
            raise ValueError(f"configuration {group!r} is registered already")
        self._groups[group] = configuration

    def shown(self) -> Mapping[str, object]:
        return {group: configuration() for group, configuration in self._groups.items()}


def configz_routes(configz: Configz) -> Routes:
    async def handle(_: Request) -> Response:
        return responses.json(configz.shown())

    return Routes({"/configz": handle})


def version_routes(build: Build) -> Routes:
    async def handle(_: Request) -> Response:
        return responses.json(build)

    return Routes({"/version": handle})


SHOWN_TYPES = 40
LONGEST_BODY = 64

SetVerbosity = Callable[[int], None]

_PPROF = (
    "Go profiles are not available. See /debug/stacks (tasks and threads) and /debug/memory;\n"
    "for a CPU profile, run py-spy on this process.\n"
)


def debug_routes(set_verbosity: SetVerbosity) -> Routes:
    """The paths that exist only with `--profiling`."""

    async def verbosity(request: Request) -> Response:
        if request.method != "PUT":
            return responses.text("unsupported http method\n", status=406)
        given = (await request.read(LONGEST_BODY)).decode(errors="replace").strip()
        if not given.isdecimal():
            return responses.text(
                f"failed set klog.logging.verbosity {given}: not a whole number\n", status=400
            )
        set_verbosity(int(given))
        return responses.text(f"successfully set klog.logging.verbosity to {given}\n")

    return Routes(
        exact={"/debug/flags/v": verbosity, "/debug/stacks": _stacks, "/debug/memory": _memory},
        below={"/debug/pprof/": _pprof},
    )


async def _pprof(_: Request) -> Response:
    return responses.text(_PPROF, status=404)


async def _stacks(_: Request) -> Response:
    return responses.text("\n".join([*_tasks(), *_threads()]))


async def _memory(_: Request) -> Response:
    return responses.text(await asyncio.to_thread(_census))


def _tasks() -> Iterator[str]:
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        written = io.StringIO()
        task.print_stack(file=written)
        yield f"task {task.get_name()}\n{written.getvalue()}"


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    # Documented, for debuggers, in spite of its name.
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    for ident, frame in frames.items():
        stack = "".join(traceback.format_stack(frame))
        yield f"thread {names.get(ident, ident)}\n{stack}"


def _census() -> str:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kinds = Counter(f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects())
    lines = [
        f"peak resident memory: {peak} KiB",
        f"collections by generation: {[stats['collections'] for stats in gc.get_stats()]}",
        f"objects that the collector tracks: {kinds.total()}; the most frequent types:",
        *(f"{count:>9} {kind}" for kind, count in kinds.most_common(SHOWN_TYPES)),
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Surface:
    """What the port shows of the process."""

    health: Health
    metrics: Metrics
    configz: Configz
    set_verbosity: SetVerbosity
    history: Routes = field(default_factory=Routes)
    """The paths of the journal."""


def surface_routes(surface: Surface, *, profiling: bool) -> Routes:
    """Returns all paths. Call it once: it adds the metrics of the process to the registry."""
    build, slis = this_build(), Slis()
    add_process_metrics(surface.metrics.registry, build)
    routes = (
        health_routes(surface.health, slis.observe)
        | metrics_routes(surface.metrics.registry)
        | sli_routes(slis)
        | configz_routes(surface.configz)
        | version_routes(build)
        | surface.history
    )
    return routes | debug_routes(surface.set_verbosity) if profiling else routes
