"""Memory while many seeds are played: they leave much behind, and nothing of it is needed."""

import gc
from collections.abc import Generator
from contextlib import contextmanager

TIDY_EVERY = 5
"""Seeds after which what they left is cleared away."""


@contextmanager
def tended() -> Generator[None]:
    """The collector is off, and what is there now is none of its business: `tidy` is quick."""
    was = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def tidy(seed: int) -> None:
    """After each seed; now and then it does something."""
    if seed % TIDY_EVERY == 0:
        gc.collect()
