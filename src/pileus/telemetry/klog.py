"""How log lines look: klog's text, or one JSON document per line.

    I1116 04:33:24.123456    1234 reconciler.py:12] "Initialized node" node="a" seconds=0.2

Whatever a value holds, it cannot look like a line of its own, and secrets are masked.
"""

import json
import logging
import math
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePath
from typing import cast

from pileus.settings.go_quote import escape, quote
from pileus.telemetry.log import VALUES
from pileus.telemetry.mask import MASK, is_secret_name, masked

_SEVERITIES = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))
_KEPT_IN_LINES = '\t"\\'


def values_of(record: logging.LogRecord) -> Mapping[str, object] | None:
    """The values of the message; None for a record of a library."""
    return cast("Mapping[str, object] | None", getattr(record, VALUES, None))


class TextFormat(logging.Formatter):
    """klog's text format."""

    def format(self, record: logging.LogRecord) -> str:
        values = values_of(record)
        message = masked(record.getMessage())
        body = _one_line(message) if values is None else quote(message)
        shown = (_pair(key, value) for key, value in _all_values(record).items())
        return _header(record) + body + "".join(shown)


class JsonFormat(logging.Formatter):
    """The format of Kubernetes components with `--logging-format=json`."""

    def format(self, record: logging.LogRecord) -> str:
        path = PurePath(record.pathname)
        document: dict[str, object] = {
            "ts": round(record.created * 1000, 4),
            "caller": f"{path.parent.name}/{path.name}:{record.lineno}",
            "msg": masked(record.getMessage()),
        }
        if record.levelno < logging.ERROR:
            document["v"] = max(0, logging.INFO - record.levelno)
        for key, value in _all_values(record).items():
            document[key] = _plain(key, value)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _header(record: logging.LogRecord) -> str:
    severity = next((sign for level, sign in _SEVERITIES if record.levelno >= level), "I")
    moment = datetime.fromtimestamp(record.created, tz=UTC)
    process = record.process or 0
    when = f"{_second(moment.replace(microsecond=0))}.{moment.microsecond:06d}"
    return f"{severity}{when} {process:7d} {record.filename}:{record.lineno}] "


@lru_cache(maxsize=1)
def _second(moment: datetime) -> str:
    """Returns the local time. Many lines are of the same second."""
    return moment.astimezone().strftime("%m%d %H:%M:%S")


def _all_values(record: logging.LogRecord) -> dict[str, object]:
    values = dict(values_of(record) or {})
    if record.exc_info and record.exc_info[1] is not None:
        values["stacktrace"] = "".join(traceback.format_exception(record.exc_info[1]))
    return values


def _pair(key: str, value: object) -> str:
    plain = _plain(key, value)
    if isinstance(plain, str):
        return f" {key}=" + (quote(plain) if "\n" not in plain else _indented(plain))
    return f" {key}=" + json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _indented(text: str) -> str:
    lines = text.removesuffix("\n").split("\n")
    shown = (escape(line, keep=_KEPT_IN_LINES) for line in lines)
    return "<\n" + "".join(f"\t{line}\n" for line in shown) + " >"


def _one_line(message: str) -> str:
    return message if message.isprintable() else quote(message)


def _plain(key: str, value: object) -> object:
    """The value as JSON knows it, with secrets masked."""
    if value and is_secret_name(key):
        return MASK
    match value:
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return {str(name): _plain(str(name), one) for name, one in pairs}
        case list() | tuple() | set() | frozenset():
            return [_plain(key, one) for one in cast("list[object]", value)]
        case _:
            return masked(str(value) or (type(value).__name__ if value else ""))
