"""A command line is read as the Go program reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.settings import kinds
from pileus.settings.flags import (
    Flag,
    FlagError,
    Group,
    Table,
    parse_arguments,
    switch,
)
from pileus.settings.go_csv import render_list
from pileus.settings.values import Source, Values

NAME = Flag("cluster-name", kinds.STRING, "kubernetes", "")
ELECT = switch("leader-elect", "", default=True)
LIST = Flag("controllers", kinds.STRINGS, ("*",), "")
PERIOD = Flag("min-resync-period", kinds.DURATION, 5.0, "")
LEVEL = Flag("v", kinds.LEVEL, 0, "", short="v")
HELP = Flag("help", kinds.BOOL, default=False, help="", short="h")
OLD = switch("leader-elects", "", deprecated="use the other")
TABLE = Table([Group("All", (NAME, ELECT, LIST, PERIOD, LEVEL, HELP, OLD))])


def values_of(*arguments: str) -> Values:
    return Values(parse_arguments(TABLE, arguments).values)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cluster-name=a b",),
        ("--cluster-name", "a b"),
        ("--cluster_name=a b",),
        ("--cluster-name=x", "--cluster-name=a b"),
    ],
)
def test_a_value_comes_after_an_equals_sign_or_as_the_next_word(arguments: tuple[str, ...]):
    assert values_of(*arguments)[NAME] == "a b"


def test_a_value_may_look_like_a_flag():
    assert values_of("--cluster-name", "--leader-elect")[NAME] == "--leader-elect"


def test_a_switch_takes_no_next_word():
    arguments = parse_arguments(TABLE, ("--leader-elect", "false"))

    assert arguments.values == {"leader-elect": True}
    assert arguments.positional == ("false",)


def test_a_switch_takes_a_value_after_an_equals_sign():
    assert values_of("--leader-elect=F")[ELECT] is False


@pytest.mark.parametrize("arguments", [("-v=4",), ("-v", "4"), ("-v4",), ("-hv4",), ("--v=4",)])
def test_short_forms(arguments: tuple[str, ...]):
    assert values_of(*arguments)[LEVEL] == 4


def test_the_first_use_of_a_list_replaces_the_default_and_later_ones_append():
    assert values_of()[LIST] == ("*",)
    assert values_of("--controllers=a,b", "--controllers=c")[LIST] == ("a", "b", "c")
    assert values_of("--controllers=")[LIST] == ()


def test_nothing_after_two_dashes_is_a_flag():
    arguments = parse_arguments(TABLE, ("a", "--", "--leader-elect", "-"))

    assert arguments.positional == ("a", "--leader-elect", "-")
    assert not arguments.values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--foo",), "unknown flag: --foo"),
        (("-x",), "unknown shorthand flag: 'x' in -x"),
        (("-hx=1",), "unknown shorthand flag: 'x' in -x=1"),
        (("-hv",), "flag needs an argument: 'v' in -v"),
        (("--=x",), "bad flag syntax: --=x"),
        (("---x",), "bad flag syntax: ---x"),
        (("--cluster-name",), "flag needs an argument: --cluster-name"),
        (("-v",), "flag needs an argument: 'v' in -v"),
        (
            ("--leader-elect=maybe",),
            (
                'invalid argument "maybe" for "--leader-elect" flag: '
                'strconv.ParseBool: parsing "maybe": invalid syntax'
            ),
        ),
        (
            ("-v=a",),
            (
                'invalid argument "a" for "-v, --v" flag: strconv.ParseUint: parsing "a": '
                "invalid syntax"
            ),
        ),
        (
            ("--min-resync-period", "10"),
            (
                'invalid argument "10" for "--min-resync-period" flag: '
                'time: missing unit in duration "10"'
            ),
        ),
    ],
)
def test_a_mistake_is_told_in_the_words_of_the_go_program(arguments: tuple[str, ...], message: str):
    with pytest.raises(FlagError) as caught:
        parse_arguments(TABLE, arguments)

    assert str(caught.value) == message
    assert caught.value.usage


@pytest.mark.parametrize(
    ("mistake", "meant"),
    [
        ("--leader-elekt", "--leader-elect"),
        ("--CLUSTER_NAME", "--cluster-name"),
        ("--cluster", "--cluster-name"),
        ("-cluster-name=a", "--cluster-name"),
    ],
)
def test_a_mistyped_flag_is_answered_with_the_one_probably_meant(mistake: str, meant: str):
    with pytest.raises(FlagError) as caught:
        parse_arguments(TABLE, (mistake,))

    assert caught.value.hint == f"did you mean {meant}?"


def test_nothing_is_suggested_for_a_word_like_no_other():
    with pytest.raises(FlagError) as caught:
        parse_arguments(TABLE, ("--zzzzqq",))

    assert not caught.value.hint


def test_the_command_line_wins_over_the_environment_and_that_over_the_file():
    layers = {
        Source.FLAG: {"cluster-name": "flag"},
        Source.FILE: {"cluster-name": "file", "min-resync-period": 1.0, "controllers": ("f",)},
        Source.ENVIRONMENT: {"cluster-name": "environment", "min-resync-period": 2.0},
    }
    values = Values.layered(layers)

    assert (values[NAME], values.source(NAME)) == ("flag", Source.FLAG)
    assert (values[PERIOD], values.source(PERIOD)) == (2.0, Source.ENVIRONMENT)
    assert (values[LIST], values.source(LIST)) == (("f",), Source.FILE)
    assert (values[ELECT], values.source(ELECT)) == (True, Source.DEFAULT)
    assert not values.given(ELECT)


@given(
    st.text(max_size=10),
    st.booleans(),
    st.lists(st.text(min_size=1, max_size=6), max_size=4),
    st.integers(min_value=0, max_value=99),
)
def test_what_is_written_as_flags_is_read_back(
    name: str, elect: bool, entries: list[str], level: int
):
    values = values_of(
        f"--cluster-name={name}",
        f"--leader-elect={kinds.render_bool(elect)}",
        f"--controllers={render_list(entries)}",
        f"-v{level}",
    )

    assert (values[NAME], values[ELECT], values[LIST], values[LEVEL]) == (
        name,
        elect,
        tuple(entries),
        level,
    )


@given(st.lists(st.text(alphabet="-=vhx leader-elect\n", max_size=12), max_size=5))
def test_any_command_line_is_either_understood_or_a_flag_error(arguments: list[str]):
    try:
        parsed = parse_arguments(TABLE, arguments)
    except FlagError:
        return

    assert set(parsed.values) <= {flag.name for flag in TABLE}
