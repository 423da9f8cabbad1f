"""The INI dialect of cloud.conf, against what Go's gcfg reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.providers.openstack.gcfg import Entry, SyntaxFault, parse


def keys(text: str) -> list[tuple[str, str | None, str, str | None]]:
    return [(e.section, e.subsection, e.key, e.value) for e in parse(text) if e.key]


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_characters="\r\0", exclude_categories=("Cs",)), max_size=30)
PLAIN = st.from_regex(
    r"([A-Za-z0-9_./:=&!~*?,'-]([ A-Za-z0-9_./:=-]*[A-Za-z0-9])?)?", fullmatch=True
)
BLANKS = st.sampled_from(["", " ", "\t", "  "])
ENDS = st.sampled_from(["\n", "\r\n", " ; note\n", '\t# "note\n', "\n\n# x\n"])


@given(
    st.lists(
        st.tuples(NAMES, st.none() | st.tuples(st.booleans(), TEXTS, PLAIN), BLANKS, ENDS),
        max_size=8,
    ),
    st.none() | TEXTS.filter(lambda name: name and "\n" not in name and "\t" not in name),
)
def test_what_is_written_is_read_whatever_the_values_and_comments(entries, subsection):
    header = "[Sec]" if subsection is None else f"[Sec {quoted(subsection)}]"
    lines, expected = [f"{header}\n"], []
    for name, value, blank, end in entries:
        if value is None:
            lines.append(f"{blank}{name}{end}")
            expected.append(("Sec", subsection, name, None))
            continue
        is_quoted, text, plain = value
        shown = quoted(text) if is_quoted else plain
        lines.append(f"{blank}{name}{blank}={blank}{shown}{blank}{end}")
        expected.append(("Sec", subsection, name, text if is_quoted else plain))
    assert keys("".join(lines)) == expected


@given(st.text(st.sampled_from('[]="\\;#\n\r \tabA1-_$'), max_size=40))
def test_any_text_is_read_or_refused_with_a_line_of_the_file(text):
    try:
        lines = [entry.line for entry in parse(text)]
    except SyntaxFault as fault:
        lines = [fault.line]
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("k = v", "v"),
        ("k=v w  # comment", "v w"),
        ("k = v;comment", "v"),
        ('k = "v # w"', "v # w"),
        ('k = a" b "c', "a b c"),
        ('k = "  "  ', "  "),
        ('k = \\"x\\"', '"x"'),
        ("k = a\\\n b", "a b"),
        ("k = a\\\r\n b", "a b"),
        ("k =", ""),
        ("k", None),
        ("k ; alone", None),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}t\N{LATIN SMALL LETTER E WITH ACUTE} = ü", "ü"),
    ],
)
def test_values_are_read_as_go_reads_them(line, value):
    assert [each[3] for each in keys(f"[s]\n{line}\n")] == [value]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("key = value", 1, "expected a section"),
        ("[Global]\nauth_url = x", 2, "dashes instead of underscores"),
        ('[Global]\n\npassword = "x', 3, "no closing quote"),
        ("[Global]\npassword = a\\b", 2, "must be in double quotes"),
        ('[Global]\npassword = "a\\b"', 2, "unknown escape sequence \\b"),
        ("[Global", 1, 'expected "]"'),
        ("[Global] x = y", 1, "expected the end of the line"),
        ('[Class ""]', 1, "is empty"),
        ("[Global]\na b", 2, 'expected "="'),
        ("[Global]\n= b", 2, 'unexpected character "="'),
        ("[1]", 1, "expected the name of a section"),
    ],
)
def test_an_error_names_the_line_and_what_is_expected(text, line, words):
    with pytest.raises(SyntaxFault) as error:
        parse(text)
    assert error.value.line == line
    assert words in str(error.value)


def test_headers_are_entries_too_so_that_empty_sections_are_known():
    assert parse('\N{BOM}[A]\n[B "x\\"y"]') == (Entry(1, "A", None), Entry(2, "B", 'x"y'))


def test_a_value_is_not_part_of_the_text_of_an_entry():
    assert "hunter2" not in repr(parse("[Global]\npassword = hunter2"))
