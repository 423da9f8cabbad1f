"""Events of one controller on objects, without repeating the same warning."""

import asyncio
from collections.abc import Iterable

from pileus.fix import printable
from pileus.kube.model.core_v1 import ObjectReference
from pileus.runtime.events import Recorder
from pileus.runtime.memory import PerObject
from pileus.telemetry.mask import masked

REPEAT_AFTER = 3600.0
"""Seconds after which a warning that still holds is repeated (events expire after an hour)."""
LONGEST = 1000
"""Characters of an error's text in an event or a condition."""


class ObjectEvents:
    """Records the events of one controller. Warnings are remembered per object and reason."""

    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._warned = PerObject[str, dict[tuple[str, str], tuple[float, str]]](
            "objects/notices", ends_with_object=True
        )
        """When each reason was last recorded for a part of the object, and with which text."""

    def announce(self, about: ObjectReference, reason: str, message: str) -> None:
        self._events.record(about, "Normal", reason, message)

    def warn(
        self,
        about: ObjectReference,
        reason: str,
        message: str,
        *,
        part: str = "",
        by_text: bool = False,
    ) -> None:
        """Record a warning, unless the object got one for this reason within the last hour.

        `part`: the part of the object that it is about; each part has its own warnings.
        `by_text`: a new text counts as a new reason. Not for texts of others, which may differ each
        time, for example by the ID of a request.
        """
        warned = self._warned.setdefault(_key(about), {})
        now = asyncio.get_running_loop().time()
        since, text = warned.get((reason, part), (-REPEAT_AFTER, ""))
        if now - since < REPEAT_AFTER and (text == message or not by_text):
            return
        warned[reason, part] = now, message
        self._events.record(about, "Warning", reason, message)

    def forget(self, about: ObjectReference, reason: str, *, part: str = "") -> None:
        """Record that the problem is solved: the next warning for this reason is not a repeat."""
        warned = self._warned.get(_key(about), {})
        warned.pop((reason, part), None)
        if not warned:
            self._warned.pop(_key(about), None)

    def keep(self, objects: Iterable[ObjectReference]) -> None:
        """Forget the warnings of all objects but these."""
        self._warned.keep({_key(about) for about in objects})


def shortened(text: str) -> str:
    """Returns the text as it fits into an event or a condition.

    It is bounded, and has neither secrets nor control characters, also if a provider quotes them.
    """
    text = printable(masked(text))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _key(about: ObjectReference) -> str:
    return about.uid or f"{about.kind}/{about.namespace}/{about.name}"
