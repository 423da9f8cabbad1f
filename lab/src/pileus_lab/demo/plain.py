"""The demo as plain lines: for pipes, files, dumb terminals, and `--once`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TextIO

from pileus_lab.demo.scene import Note, Progress, StepRow


@dataclass(frozen=True, slots=True)
class Plain:
    """An audience that writes each line as soon as it is known."""

    out: TextIO
    is_brief: bool = False
    """Whether the steps alone are told, without the changes that they cause."""

    when_gone: Callable[[], None] = lambda: None
    """Called when nobody reads any more, as after `| head`."""

    def say(self, text: str) -> None:
        try:
            self.out.write(f"{text}\n")
            self.out.flush()
        except BrokenPipeError:
            self.when_gone()

    def noted(self, note: Note) -> None:
        if not self.is_brief:
            self.say(f"  {note.at:5.1f} s  {note.source:<7} {note.effect} {note.text}")

    def began(self, step: StepRow) -> None:
        if not self.is_brief:
            self.say(f"{step.title} ...")

    def ended(self, step: StepRow) -> None:
        self.say(f"{_line(step)} ({step.detail})" if step.detail else _line(step))

    def invited(self, hints: Iterable[str]) -> None:
        self.say("\n".join(("Try, in another terminal (Ctrl-C here ends it):", *hints)))

    def summarize(self, steps: Iterable[StepRow]) -> None:
        """For a screen that is gone: how each step ended."""
        for step in steps:
            if step.progress in {Progress.HELD, Progress.FAILED}:
                self.say(_line(step))

    def confess(self, failure: str, last_words: Iterable[str]) -> None:
        """Say what went wrong, and what the log had to say in the end."""
        self.say(f"\nThe demo failed: {failure}")
        lines = [f"  {line}" for line in last_words]
        if lines:
            self.say("\n".join(("The last lines of its log:", *lines)))


def _line(step: StepRow) -> str:
    return f"{step.progress:<6} {step.seconds:5.1f} s  {step.title}"
