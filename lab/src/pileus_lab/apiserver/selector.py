"""Label and field selectors: parsed once, matched often."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pileus_lab.apiserver import errors
from pileus_lab.apiserver.naming import BAD_QUALIFIED, BAD_VALUE, path_segment_faults

_TOKEN = re.compile(r"\s*(==|!=|=|<|>|,|\(|\)|!|[^\s=!<>,()]+)")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SYMBOLS = frozenset({"=", "==", "!=", "<", ">", ",", "(", ")", "!", "in", "notin"})


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        bound = int(next(iter(self.values)))
        if value is None or not value.lstrip("-").isdigit():
            return False
        return int(value) > bound if self.operator == ">" else int(value) < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(r.matches(labels) for r in self.requirements)


class _Parser:
    def __init__(self, written: str) -> None:
        self._tokens = _TOKEN.findall(written)
        self._at = 0

    def parse(self) -> LabelSelector:
        found: list[Requirement] = []
        while self._peek():
            found.append(self._requirement())
            if self._peek():
                self._expect(",")
                if not self._peek():
                    raise errors.bad_request("found '', expected: identifier after ','")
        return LabelSelector(tuple(found))

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if (found := self._take()) != token:
            raise _unparsable(f"found '{found}', expected: '{token}'")

    def _requirement(self) -> Requirement:
        if self._peek() == "!":
            self._take()
            return Requirement(self._key(), "!")
        key = self._key()
        match self._peek():
            case "" | ",":
                return Requirement(key, "exists")
            case "in" | "notin":
                return Requirement(key, self._take(), self._list())
            case "=" | "==" | "!=":
                operator = "notin" if self._take() == "!=" else "in"
                return Requirement(key, operator, frozenset({self._value(key)}))
            case "<" | ">":
                return self._bound(key)
            case found:
                expected = "in, notin, =, ==, !=, gt, lt"
                raise _unparsable(f"found '{found}', expected: {expected}")

    def _bound(self, key: str) -> Requirement:
        operator, value = self._take(), self._value(key)
        if not value.lstrip("-").isdigit():
            raise _unparsable(
                f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, "
                "the value must be an integer"
            )
        return Requirement(key, operator, frozenset({value}))

    def _key(self) -> str:
        found = self._take()
        if not found or found in _SYMBOLS - {"in", "notin"}:
            raise _unparsable(f"found '{found}', expected: identifier")
        if not _KEY.fullmatch(found):
            raise _unparsable(f'<nil>: Invalid value: "{found}": {BAD_QUALIFIED}')
        return found

    def _value(self, key: str) -> str:
        if self._peek() in {"", ","}:
            return ""
        found = self._take()
        if found in _SYMBOLS - {"in", "notin"}:
            raise _unparsable(f"found '{found}', expected: identifier")
        if not _VALUE.fullmatch(found):
            raise _unparsable(f'values[0][{key}]: Invalid value: "{found}": {BAD_VALUE}')
        return found

    def _list(self) -> frozenset[str]:
        self._expect("(")
        values: set[str] = set()
        while True:
            values.add("" if self._peek() in {",", ")"} else self._take())
            if (found := self._take()) == ")":
                return frozenset(values)
            if found != ",":
                raise _unparsable(f"found '{found}', expected: ',' or ')'")


def _unparsable(why: str) -> errors.Problem:
    return errors.bad_request(f"unable to parse requirement: {why}")


def parse_labels(written: str) -> LabelSelector:
    """Returns the selector. Raises `Problem` 400."""
    return _Parser(written).parse()


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Pairs of a field and whether it must equal (True) or differ from (False) a value."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def matches(self, field: Callable[[str], str]) -> bool:
        return all((field(name) == value) is equal for name, equal, value in self.terms)

    def exact(self, field: str) -> str | None:
        """Returns the value that the field must equal, if there is one."""
        return next((v for name, equal, v in self.terms if equal and name == field), None)


def parse_fields(written: str, known: frozenset[str], *, special: bool) -> FieldSelector:
    """Returns the selector; `special`: the resource has more than the usual fields.

    Raises `Problem` 400 for a field that cannot be selected by.
    """
    selector = _parse_fields(written)
    for name, _, _ in selector.terms:
        if name in known:
            continue
        usual = 'only "metadata.name", "metadata.namespace"'
        if special:
            raise errors.bad_request(f"field label not supported: {name}")
        raise errors.bad_request(f'"{name}" is not a known field selector: {usual}')
    return selector


def selected_name(written: str) -> str:
    """Returns the name that every selected object must have; "" if there is none."""
    try:
        name = _parse_fields(written).exact("metadata.name") or ""
    except errors.Problem:
        return ""
    return "" if any(path_segment_faults(name)) else name


def _parse_fields(written: str) -> FieldSelector:
    terms: list[tuple[str, bool, str]] = []
    for term in filter(None, re.split(r"(?<!\\),", written)):
        name, operator, value = _split(term)
        if not operator:
            message = f"invalid selector: '{written}'; can't understand '{term}'"
            raise errors.bad_request(message)
        terms.append((name, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return FieldSelector(tuple(terms))


def _split(term: str) -> tuple[str, str, str]:
    found = re.match(r"(.*?)(!=|==|=)(.*)", term)
    return (found[1], found[2], found[3]) if found else (term, "", "")
