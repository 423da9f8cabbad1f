r"""Patterns for names that users give: globs and regular expressions, matched in linear time.

    matches = name_pattern("~^public-[0-9]+$")
    matches("public-12")                       # True

A pattern of a user never reaches `re`, where one of 80 characters can match for hours. It becomes
an automaton (Glushkov's: one state per character of the pattern) that reads every character of a
name once. Globs have `*`, `?`, `[a-z]`, `[!a-z]` and `{a,b}`. Expressions have `.`, `[a-z]`,
`[^a-z]`, `\d`, `\w`, `\s`, `(…)`, `(?:…)`, `|`, `*`, `+`, `?`, and `^` and `$` at both ends.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from pileus.fix import one_line

MOST_CHARACTERS = 255
"""Of a pattern: no name that it could match literally is longer."""
MOST_DEPTH = 20
"""Groups in groups."""

_Ranges = tuple[tuple[str, str], ...]
_ANY: _Ranges = (("\0", "\U0010ffff"),)
_CLASSES: dict[str, _Ranges] = {
    "d": (("0", "9"),),
    "w": (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z")),
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_NEGATED = {"D", "W", "S"}


class _Part(NamedTuple):
    """A piece of a pattern; sets of states are bits of an integer."""

    can_be_empty: bool
    first: int
    last: int


_EMPTY = _Part(can_be_empty=True, first=0, last=0)


def name_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns whether a whole name matches a glob, or a regular expression after `~`.

    A leading `!` negates. Raises ValueError if the pattern is too long or not understood.
    """
    negated = pattern.startswith("!")
    text = pattern.removeprefix("!")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text)} characters, more than {MOST_CHARACTERS}")
    automaton = _Automaton(text[1:] if text.startswith("~") else _of_glob(text))
    return lambda name: automaton.accepts(name) != negated


class _Automaton:
    """Parses a regular expression into states, and runs them over names."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._states: list[tuple[bool, _Ranges]] = []
        """For each state whether its set is negated, and the set of characters that it reads."""
        self._follow: list[int] = []
        self._reads: dict[str, int] = {}
        """The states that read a character, for the characters that were seen."""
        self._whole = self._alternatives(depth=0)
        if self._at < len(text):
            raise self._problem("unexpected )")

    def accepts(self, name: str) -> bool:
        allowed, reached = self._whole.first, 0
        for sign in name:
            if sign not in self._reads:
                self._reads[sign] = sum(
                    1 << state
                    for state, (negated, ranges) in enumerate(self._states)
                    if any(low <= sign <= high for low, high in ranges) != negated
                )
            reached = allowed & self._reads[sign]
            allowed = 0
            for state in _bits(reached):
                allowed |= self._follow[state]
        return bool(reached & self._whole.last) if name else self._whole.can_be_empty

    def _alternatives(self, depth: int) -> _Part:
        found = self._sequence(depth)
        while self._takes("|"):
            other = self._sequence(depth)
            found = _Part(
                found.can_be_empty or other.can_be_empty,
                found.first | other.first,
                found.last | other.last,
            )
        return found

    def _sequence(self, depth: int) -> _Part:
        if depth == 0:
            self._takes("^")
        found = _EMPTY
        while self._next() not in {"", "|", ")"}:
            ends = depth == 0 and self._text[self._at + 1 : self._at + 2] in {"", "|"}
            if ends and self._takes("$"):
                break
            after = self._repeated(depth)
            self._connect(found.last, after.first)
            found = _Part(
                found.can_be_empty and after.can_be_empty,
                found.first | (after.first if found.can_be_empty else 0),
                after.last | (found.last if after.can_be_empty else 0),
            )
        return found

    def _repeated(self, depth: int) -> _Part:
        found = self._single(depth)
        if (sign := self._next()) in {"*", "+", "?"}:
            self._at += 1
            self._takes("?")  # not greedy: whether a whole name matches does not depend on it
            if sign != "?":
                self._connect(found.last, found.first)
            if sign != "+":
                return found._replace(can_be_empty=True)
        return found

    def _single(self, depth: int) -> _Part:
        sign = self._next()
        self._at += 1
        if sign in {"*", "+", "?", "^", "$"}:
            raise self._problem(f"{sign} at this place")
        if sign == "{":
            raise self._problem("repetitions in braces are not supported: use * or +, or write \\{")
        if sign == "(":
            if depth == MOST_DEPTH or (self._next() == "?" and not self._takes("?:")):
                raise self._problem(f"only groups (…) and (?:…), {MOST_DEPTH} in each other")
            found = self._alternatives(depth + 1)
            if not self._takes(")"):
                raise self._problem("missing )")
            return found
        if sign == "[":
            self._states.append((self._takes("^"), tuple(self._ranges())))
        elif sign == "\\":
            self._states.append((self._next() in _NEGATED, self._escaped()))
        else:
            self._states.append((False, _ANY if sign == "." else ((sign, sign),)))
        self._follow.append(0)
        state = 1 << (len(self._states) - 1)
        return _Part(can_be_empty=False, first=state, last=state)

    def _ranges(self) -> Iterator[tuple[str, str]]:
        """Returns what is left of a set. A closing bracket in the first place is literal."""
        first = self._at
        while (sign := self._next()) != "]" or self._at == first:
            self._at += 1
            high = self._text[self._at + 1 : self._at + 2] if self._next() == "-" else ""
            is_negated = sign == "\\" and self._next() in _NEGATED
            if not sign or sign + self._next() == "[:" or is_negated or high == "\\":
                raise self._problem("only closed sets such as [a-z0-9_]")
            if sign == "\\":
                yield from self._escaped()
            elif high not in {"", "]"}:
                yield sign, high
                self._at += 2
            else:
                yield sign, sign
        self._at += 1

    def _escaped(self) -> _Ranges:
        sign = self._next()
        self._at += 1
        if not sign or (sign.isalnum() and sign.lower() not in _CLASSES):
            raise self._problem(f"\\{sign} is not supported")
        return _CLASSES.get(sign.lower(), ((sign, sign),))

    def _connect(self, last: int, first: int) -> None:
        for state in _bits(last):
            self._follow[state] |= first

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _takes(self, word: str) -> bool:
        found = self._text.startswith(word, self._at)
        self._at += len(word) if found else 0
        return found

    def _problem(self, what: str) -> ValueError:
        return ValueError(one_line(f"{what} (character {self._at} of {self._text})"))


def _bits(states: int) -> Iterator[int]:
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def _of_glob(glob: str) -> str:
    """Returns the regular expression of a glob. Brackets that are not closed are literal."""
    found: list[str] = []
    has_braces, depth, at = glob.count("{") == glob.count("}"), 0, 0
    while at < len(glob):
        sign = glob[at]
        at += 1
        if sign == "*":
            found.append(".*" if found[-1:] != [".*"] else "")
        elif sign == "?":
            found.append(".")
        elif sign == "[" and (end := glob.find("]", at + 1 + (glob[at : at + 1] == "!"))) > 0:
            inside = "".join(each if each in "-]" else _literal(each) for each in glob[at:end])
            found.append(f"[^{inside[2:]}]" if glob[at] == "!" else f"[{inside}]")
            at = end + 1
        elif sign in "{,}" and has_braces and (depth or sign == "{"):
            depth += {"{": 1, "}": -1, ",": 0}[sign]
            found.append({"{": "(?:", "}": ")", ",": "|"}[sign])
        else:
            found.append(_literal(sign))
    return "".join(found)


def _literal(sign: str) -> str:
    return sign if sign.isalnum() else f"\\{sign}"
