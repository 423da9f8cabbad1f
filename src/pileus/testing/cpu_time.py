"""CPU time of code under test, in seconds of one reference machine.

A limit in seconds holds on one machine, at one moment: another machine is slower, and so is this
one while other processes use its caches. So known work is measured beside the code, and the result
is scaled by it. The wall clock plays no part, nor do other threads, and garbage is not collected
meanwhile. What remains is noise that only adds: the least of several measurements counts.
"""

import gc
import time
from collections.abc import Callable
from math import inf

REFERENCE = 0.004
"""Seconds that `known_work` takes on the reference machine."""
STEPS = 100_000
TRIES = 5


def scaled_cpu_time(measure: Callable[[], float], limit: float) -> float:
    """Returns the least of several measurements, in seconds of the reference machine.

    Fewer are made if the first ones are below the limit. `measure` returns what `cpu_time` did.
    """
    known = least = scaled = inf
    for _ in range(TRIES):
        known, least = min(known, cpu_time(known_work)), min(least, measure())
        scaled = least * REFERENCE / known
        if scaled < limit:
            break
    return scaled


def known_work() -> None:
    kept: dict[int, tuple[int, ...]] = {}
    for step in range(STEPS):
        kept[step % 97] = (step,)


def cpu_time(call: Callable[[], object]) -> float:
    """Returns the CPU time of a call in this thread, in seconds, without the garbage collector."""
    gc.disable()
    try:
        began = time.thread_time()
        call()
        return time.thread_time() - began
    finally:
        gc.enable()
