"""`/debug`: what the process is doing at this moment, and how much it says about it."""

import asyncio
import gc
import io
import resource
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

from aiohttp import web

from pileus.server import answer
from pileus.server.router import Routes

SHOWN_TYPES = 40
LONGEST_BODY = 64

SetVerbosity = Callable[[int], None]

_PPROF = (
    "There are no Go profiles here. See /debug/stacks (tasks and threads) and /debug/memory;\n"
    "for a CPU profile run py-spy on this process.\n"
)


def debug_routes(set_verbosity: SetVerbosity) -> Routes:
    """The paths that exist only with `--profiling`."""

    async def verbosity(request: web.BaseRequest) -> web.Response:
        if request.method != "PUT":
            return answer.text("unsupported http method\n", status=406)
        given = (await request.content.read(LONGEST_BODY)).decode(errors="replace").strip()
        if not given.isdecimal():
            return answer.text(
                f"failed set klog.logging.verbosity {given}: not a whole number\n", status=400
            )
        set_verbosity(int(given))
        return answer.text(f"successfully set klog.logging.verbosity to {given}\n")

    return Routes(
        exact={"/debug/flags/v": verbosity, "/debug/stacks": _stacks, "/debug/memory": _memory},
        below={"/debug/pprof/": _pprof},
    )


async def _pprof(_: web.BaseRequest) -> web.Response:
    return answer.text(_PPROF, status=404)


async def _stacks(_: web.BaseRequest) -> web.Response:
    return answer.text("\n".join([*_tasks(), *_threads()]))


async def _memory(_: web.BaseRequest) -> web.Response:
    return answer.text(await asyncio.to_thread(_census))


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
