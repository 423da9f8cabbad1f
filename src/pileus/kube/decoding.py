"""Decode JSON that another program wrote, whatever its depth and however broken it is.

msgspec skips unknown fields recursively and raises RecursionError for about 1,000 nested values. An
API server stores `metadata.managedFields[].fieldsV1` far deeper than that. No field that Pileus
reads is nested that deep, so a value that is too deep is decoded again without its deep parts.
"""

import re
from typing import TypeVar

import msgspec

DEEPEST = 64
"""Levels of nesting that are kept of a value that is too deep. The models need less than 12."""

T = TypeVar("T")

_UP_TO_BRACKET = re.compile(
    rb"""(?: [^"\[\]{}]++ | "[^"\\]*+ (?:\\.[^"\\]*+)*+ "? )*+ (?: ([\[{]) | ([\]}]++) | \Z )""",
    re.DOTALL | re.VERBOSE,
)
"""Text and whole strings, then an opening bracket, a run of closing ones, or the end.

Possessive, and matches anywhere: no input makes it backtrack or start again.
"""
_OPENING = 1
"""The group of an opening bracket."""
_FAULTS = (msgspec.MsgspecError, ValueError, OverflowError)


class Malformed(Exception):
    """The text is not JSON, or not of the expected type. The message says what and where."""


def decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw) -> T:
    """Return the decoded value. Values nested deeper than msgspec can skip are read as null.

    Raises `Malformed`, and nothing else, for any input.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return _decode_again(decoder, shallow(bytes(text)))
    except _FAULTS as error:
        raise Malformed(str(error)) from error


def shallow(text: bytes, deepest: int = DEEPEST) -> bytes:
    """Return the JSON with every object or array below `deepest` levels replaced by null.

    Works without recursion, in time proportional to the length of the text. What is wrong within a
    replaced part goes unnoticed; what is wrong elsewhere stays wrong.
    """
    kept: list[bytes] = []
    depth = begin = 0
    for found in _UP_TO_BRACKET.finditer(text):
        first, end = found.span(2)
        if found.lastindex == _OPENING:
            depth += 1
            if depth == deepest + 1:
                kept += (text[begin : found.end() - 1], b"null")
        else:
            if depth > deepest >= depth - (end - first):
                begin = first + depth - deepest
            depth -= end - first
    if depth <= deepest:
        kept.append(text[begin:])
    return b"".join(kept)


def _decode_again(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except (*_FAULTS, RecursionError) as error:
        raise Malformed(str(error)) from error
