"""Tables fit the terminal, lose nothing, and break no word that fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cli.terminal import table_lines

CELL = st.lists(st.text("abcxyz0123456789-./:", min_size=1, max_size=40), max_size=4).map(" ".join)
ROW = st.tuples(CELL, CELL, CELL, CELL)
HEADS = ("NAME", "STATE", "ADDRESSES", "PROVIDER ID")


@given(rows=st.lists(ROW, min_size=1, max_size=4), width=st.sampled_from([60, 80, 120]))
def test_no_line_is_too_long_and_every_word_is_whole(
    rows: list[tuple[str, str, str, str]], width: int
):
    lines = list(table_lines(HEADS, rows, width))
    shown = " ".join(lines).split()

    assert max(map(len, lines)) <= width
    for row in rows:
        for cell in row:
            assert all(word in shown for word in cell.split())


@given(rows=st.lists(ROW, min_size=1, max_size=4))
def test_a_pipe_gets_one_line_per_row(rows: list[tuple[str, str, str, str]]):
    assert len(list(table_lines(HEADS, rows, 0))) == len(rows) + 1


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        (
            "web-1",
            80,
            ["NAME    ADDRESSES            ID", "web-1   127.77.0.1 fd77::1   i-1"],
        ),
        (
            "web-1",
            26,
            ["NAME    ADDRESSES      ID", "web-1   127.77.0.1     i-1", "        fd77::1"],
        ),
        (
            "a-very-long-name-of-an-instance",
            40,
            [
                "a-very-long-name-of-an-instance",
                "  ADDRESSES   127.77.0.1 fd77::1",
                "  ID          i-1",
            ],
        ),
    ],
)
def test_columns_are_wrapped_before_rows_become_blocks(name: str, width: int, expected: list[str]):
    rows = [(name, "127.77.0.1 fd77::1", "i-1")]

    lines = table_lines(("NAME", "ADDRESSES", "ID"), rows, width)

    assert [line.rstrip() for line in lines] == expected
