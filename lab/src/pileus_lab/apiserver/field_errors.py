"""Errors of one field of an object: path, type and message."""

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause of a 422."""

    path: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    def cause(self) -> dict[str, object]:
        return {"reason": self.reason, "message": self.message, "field": self.path}


def required(path: str, detail: str = "") -> Fault:
    return Fault(path, "FieldValueRequired", _joined("Required value", detail))


def invalid(path: str, value: object, detail: str) -> Fault:
    return Fault(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def unsupported(path: str, value: object, allowed: Iterable[str]) -> Fault:
    known = ", ".join(_shown(a) for a in sorted(allowed))
    message = f"Unsupported value: {_shown(value)}: supported values: {known}"
    return Fault(path, "FieldValueNotSupported", message)


def forbidden(path: str, detail: str) -> Fault:
    return Fault(path, "FieldValueForbidden", _joined("Forbidden", detail))


def duplicate(path: str, value: object) -> Fault:
    return Fault(path, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def not_found(path: str, value: object) -> Fault:
    return Fault(path, "FieldValueNotFound", f"Not found: {_shown(value)}")


def too_long(path: str, limit: int) -> Fault:
    return Fault(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def immutable(path: str, value: object) -> Fault:
    return invalid(path, value, "field is immutable")


def _joined(head: str, detail: str) -> str:
    return f"{head}: {detail}" if detail else head


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
