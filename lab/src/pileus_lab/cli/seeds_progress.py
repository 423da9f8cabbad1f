"""How far a campaign of seeds has come: a bar on a terminal, a line a minute elsewhere.

A seed that fails is named at once; nobody has to wait for the others to look at it.
"""

from typing import TYPE_CHECKING

from pileus.cli.progress import CLEAR
from pileus.cli.style import Ink, Style
from pileus.cli.terminal import Terminal
from pileus.clock import since_boot

if TYPE_CHECKING:
    from pileus_lab.simulation.campaign import Summary
    from pileus_lab.simulation.report import Report

BETWEEN = 0.2
"""Seconds between two drawings on a terminal; elsewhere it is a minute."""
MINUTE = 60.0
LONGEST_BAR = 40


class SeedsProgress:
    """Told after each seed; writes to standard error."""

    def __init__(self, terminal: Terminal) -> None:
        self._stream = terminal.err
        self._width = terminal.width(terminal.err)
        colour = bool(self._width) and not terminal.environment.get("NO_COLOR")
        self._style = Style(self._width, colour)
        self._started = self._shown = since_boot()
        self._named: set[int] = set()

    def tell(self, summary: "Summary") -> None:
        if summary.is_whole:
            return
        self._name_failed(summary)
        now = since_boot()
        if now - self._shown < (BETWEEN if self._width else MINUTE):
            return
        self._shown = now
        text = told_progress(summary, now - self._started)
        if self._width:
            drawn = drawn_bar(summary, text, self._width - 1)
            if summary.failed:
                drawn = self._style.inked(drawn, Ink.RED)
            text = f"{CLEAR}{drawn}"
        else:
            text = f"{text}\n"
        self._stream.write(text)
        self._stream.flush()

    def _name_failed(self, summary: "Summary") -> None:
        for report in summary.failed:
            if report.seed not in self._named:
                self._named.add(report.seed)
                line = self._style.inked(told_failure(report), Ink.RED)
                self._stream.write(f"{CLEAR if self._width else ''}{line}\n")
                self._stream.flush()

    def end(self) -> None:
        if self._width:
            self._stream.write(CLEAR)
            self._stream.flush()


def told_progress(summary: "Summary", seconds: float) -> str:
    per_second = summary.seeds / seconds if seconds else 0.0
    left = (summary.wanted - summary.seeds) / per_second if per_second else 0.0
    return (
        f"{summary.seeds}/{summary.wanted} seeds, {len(summary.failed)} failed, "
        f"{per_second * MINUTE:.0f} a minute, {told_duration(left)} left"
    )


def told_failure(report: "Report") -> str:
    """In one line; the summary says all, and how to play it again."""
    return f"seed {report.seed} failed: {report.violation.partition(chr(10))[0]}"


def told_duration(seconds: float) -> str:
    minutes = round(seconds / MINUTE)
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < MINUTE else f"{minutes // 60} h {minutes % 60:02} min"


def drawn_bar(summary: "Summary", text: str, width: int) -> str:
    """A bar before the text, as long as there is room for it."""
    room = min(LONGEST_BAR, width - len(text) - len("[] "))
    if room < 1:
        return text[:width]
    full = room * summary.seeds // summary.wanted
    return f"[{'#' * full}{' ' * (room - full)}] {text}"
