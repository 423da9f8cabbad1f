r"""The INI dialect of Go's gcfg library, in which `cloud.conf` is written. Pure.

    # a comment; also ; and also behind a value
    [Global]
    password = "with \"quotes\", a #, and \\ or \n"
    [LoadBalancer]
    create-monitor                 ; a key alone means true
    [LoadBalancerClass "internal"] ; a subsection

Names consist of letters, digits and dashes, and case does not matter. A key that is repeated has
several values. A backslash at the end of a line continues the value on the next one.
"""

from collections.abc import Iterator
from dataclasses import field

from pileus.dataclass import dataclass

_END = ""
_BLANKS = " \t\r"
_COMMENTS = ";#"
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}


class SyntaxFault(Exception):
    """The text cannot be read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value, or the header of a section (`key` is empty)."""

    line: int
    section: str
    subsection: str | None
    key: str = ""
    value: str | None = field(default=None, repr=False)
    """None: there is no `=`."""


def parse(text: str) -> tuple[Entry, ...]:
    """Returns headers and keys in their order. Raises `SyntaxFault`."""
    return tuple(_Scanner(text.removeprefix("\N{BOM}")).entries())


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1

    def entries(self) -> Iterator[Entry]:
        header: Entry | None = None
        while self._next_statement():
            if self._peek() == "[":
                header = self._header()
                yield header
            elif not self._peek().isalpha():
                raise self._fault(f"unexpected character {self._shown()}")
            elif header is None:
                raise self._fault("expected a section, such as [Global], before the first key")
            else:
                yield self._entry(header)

    def _next_statement(self) -> bool:
        """Skips empty lines and comments. Returns whether anything follows."""
        self._skip(_BLANKS + "\n")
        while self._peek() and self._peek() in _COMMENTS:
            self._skip_comment()
            self._skip(_BLANKS + "\n")
        return self._peek() != _END

    def _header(self) -> Entry:
        line = self._line
        self._take()
        self._skip(_BLANKS)
        section = self._name("the name of a section")
        self._skip(_BLANKS)
        subsection = self._subsection() if self._peek() == '"' else None
        self._skip(_BLANKS)
        if self._take() != "]":
            raise SyntaxFault(line, f'section "{section}": expected "]"')
        self._end_of_line()
        return Entry(line, section, subsection)

    def _entry(self, header: Entry) -> Entry:
        line = self._line
        key = self._name("a key")
        self._skip(_BLANKS)
        if self._peek() == "_":
            raise self._fault(f'key "{key}_…": names have dashes instead of underscores')
        value: str | None = None
        if self._peek() == "=":
            self._take()
            self._skip(_BLANKS)
            value = self._value()
        elif not self._is_at_end_of_line():
            raise self._fault(f'key "{key}": expected "=", found {self._shown()}')
        self._end_of_line()
        return Entry(line, header.section, header.subsection, key, value)

    def _name(self, what: str) -> str:
        start = self._at
        while self._peek().isalnum() or self._peek() == "-":
            self._take()
        name = self._text[start : self._at]
        if not name or not name[0].isalpha():
            raise self._fault(f"expected {what}, found {self._shown()}")
        return name

    def _subsection(self) -> str:
        self._take()
        found: list[str] = []
        while (char := self._take()) != '"':
            if char in {_END, "\n"}:
                raise self._fault("the name of the subsection has no closing quote")
            found.append(self._escaped(('"', "\\")) if char == "\\" else char)
        if not found:
            raise self._fault("the name of the subsection is empty")
        return "".join(found)

    def _value(self) -> str:
        """Returns the rest of the line without comment and blanks at its end, quotes resolved."""
        found: list[str] = []
        kept = 0
        is_quoted = False
        while is_quoted or not self._is_at_end_of_line():
            char = self._take()
            if is_quoted and char in {_END, "\n"}:
                raise self._fault("the value has no closing quote")
            if char == '"':
                is_quoted = not is_quoted
            elif char == "\\":
                found += self._escaped(tuple(_ESCAPES)) if is_quoted else self._unquoted_escape()
            elif char != "\r":
                found.append(char)
            kept = len(found) if is_quoted or char not in _BLANKS else kept
        return "".join(found[:kept])

    def _escaped(self, allowed: tuple[str, ...]) -> str:
        char = self._take()
        if char not in allowed:
            shown = ", ".join(f"\\{each}" for each in allowed)
            raise self._fault(f"unknown escape sequence \\{char}: use one of {shown}")
        return _ESCAPES[char]

    def _unquoted_escape(self) -> str:
        if self._peek() == "\r":
            self._take()
        char = self._take()
        if char not in {"\n", '"'}:
            raise self._fault("a value with a backslash must be in double quotes, with \\\\ for \\")
        return "" if char == "\n" else char

    def _end_of_line(self) -> None:
        self._skip(_BLANKS)
        if not self._is_at_end_of_line():
            raise self._fault(f"unexpected {self._shown()}: expected the end of the line")

    def _is_at_end_of_line(self) -> bool:
        char = self._peek()
        return char in {_END, "\n"} or char in _COMMENTS

    def _skip(self, chars: str) -> None:
        while self._peek() and self._peek() in chars:
            self._take()

    def _skip_comment(self) -> None:
        while self._peek() not in {_END, "\n"}:
            self._take()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        self._at += 1
        self._line += char == "\n"
        return char

    def _shown(self) -> str:
        return f'"{self._peek()}"' if self._peek() not in {_END, "\n"} else "the end of the line"

    def _fault(self, message: str) -> SyntaxFault:
        return SyntaxFault(self._line, message)
