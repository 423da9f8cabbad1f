"""What an operation of the cloud's API is: a frozen value that knows its own transition."""

from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from pileus_lab.local.model.state import Moment, State

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Request(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True
):
    """Base of the operations' values, as they cross the wire."""


class Operation(Protocol[A_co]):
    NAME: ClassVar[str]
    """`capability.method`; the address of the operation, and what faults are aimed at."""
    WRITES: ClassVar[bool]
    ANSWER: ClassVar[Any]
    """The type of the answer, for decoding."""

    def step(self, state: State, moment: Moment) -> tuple[State, A_co]:
        """The state after it, and its answer. Pure but for `moment.chance`.

        Errors: `CloudError`; then nothing has happened.
        """
        ...
