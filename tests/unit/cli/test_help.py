"""Every command and subcommand has help in one style, and usage errors name its usage."""

import io
from collections.abc import Iterator

import pytest

from pileus.app.settings import TABLE
from pileus.cli import explain, orphans, plan
from pileus.cli.main import COMMANDS, LAB_COMMANDS, dispatch
from pileus.cli.terminal import Terminal
from pileus.dataclass import dataclass
from pileus_lab.cli.local_commands import COMMANDS as NOUNS

GROUPS = (("local",), *(("local", noun) for noun in NOUNS))
LEAVES = (
    *((name,) for name in (*COMMANDS, *LAB_COMMANDS) if name != "local"),
    ("local", "serve"),
    ("local", "nodes"),
    *(("local", noun, verb) for noun, verbs in NOUNS.items() for verb in verbs),
)
ALL = (*GROUPS, *LEAVES)


@dataclass(frozen=True)
class Wide(Terminal):
    columns: int = 0

    def width(self, stream: object) -> int:
        return self.columns


def call(*arguments: str, columns: int = 0) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = dispatch(list(arguments), Wide(out, err, {}, columns=columns))
    return code, out.getvalue(), err.getvalue()


def name(command: tuple[str, ...]) -> str:
    return " ".join(command)


@pytest.mark.parametrize("columns", [0, 80, 200])
@pytest.mark.parametrize("command", [(), *ALL], ids=name)
def test_help_works_for_every_command_in_one_style(command: tuple[str, ...], columns: int):
    code, out, err = call(*command, "--help", columns=columns)

    assert (code, err) == (0, "")
    assert f"Usage:\n  {name(('pileus', *command))}" in out
    assert "usage: " not in out
    assert "options:" not in out
    assert "positional arguments:" not in out
    assert not [line for line in out.splitlines() if len(line) > (80 if columns == 80 else 120)]
    if command in LEAVES:
        assert "\n  -h, --help" in out


@pytest.mark.parametrize("command", [(), *ALL], ids=name)
def test_help_has_no_gaps(command: tuple[str, ...]):
    _, out, _ = call(*command, "--help")

    assert "\n\n\n" not in out


def test_help_calls_the_cloud_provider_required_only_where_it_is():
    required = {each: "(required)" in call(each, "--help")[1] for each in COMMANDS if each != "run"}

    assert {each for each, is_so in required.items() if is_so} == {
        *("plan", "explain", "orphans", "csi", "manifests")
    }
    assert "empty: the cloud is not checked" in call("doctor", "--help")[1]
    for each in ("history", "top"):
        assert "--cloud-provider" not in call(each, "--help")[1]


@pytest.mark.parametrize("command", ALL, ids=name)
def test_help_can_be_asked_for_in_three_ways(command: tuple[str, ...]):
    assert call("help", *command) == call(*command, "--help") == call(*command, "-h")


# What follows `flexvolume` is a call, which is answered with JSON whatever it is.
WITH_FLAGS = [each for each in LEAVES if each not in {("run",), ("flexvolume",)}]


@pytest.mark.parametrize("command", WITH_FLAGS, ids=name)
def test_an_unknown_flag_is_answered_with_the_usage_of_its_command(command: tuple[str, ...]):
    code, out, err = call(*command, "--no-such-flag-at-all")

    assert (code, out) == (1, "")
    assert "--no-such-flag-at-all" in err.splitlines()[0]
    assert f"\nUsage: {name(('pileus', *command))}" in err
    assert err.endswith(f'Run "{name(("pileus", *command))} --help" for more information.\n')


def misspelt() -> Iterator[tuple[tuple[str, ...], str]]:
    for command in (*GROUPS, *LEAVES):
        *above, last = command
        if command == ("version",):
            continue
        yield (*above, f"{last[:-2]}x{last[-2:]}"), name(("pileus", *command))


@pytest.mark.parametrize(("command", "meant"), list(misspelt()))
def test_a_misspelt_command_is_answered_with_the_one_meant(command: tuple[str, ...], meant: str):
    code, out, err = call(*command)

    assert (code, out) == (1, "")
    assert err.startswith("Error: unknown command")
    assert f"did you mean {meant}?" in err


OBJECT = "KIND [NAMESPACE/]NAME"


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        (["explain"], f"pileus explain ({OBJECT}) [flags]"),
        (["plan", "pod", "x"], f"pileus plan [{OBJECT}] [flags]"),
        (["orphans", "x"], "pileus orphans [flags]"),
        (["plan"], f"pileus plan [{OBJECT}] [flags]"),
        (["local", "instances", "create"], "pileus local instances create NAME... [flags]"),
        (["local", "volumes", "attach", "v"], "pileus local volumes attach NAME INSTANCE [flags]"),
        (["version", "x"], "pileus version [flags]"),
        (["apiserver", "--port=x"], "pileus apiserver [flags]"),
    ],
)
def test_usage_errors_name_the_usage_not_the_first_missing_flag(line: list[str], usage: str):
    code, out, err = call(*line)

    assert (code, out) == (1, "")
    assert f"\nUsage: {usage}\n" in err
    assert len(err.splitlines()) <= 4


OWN_FLAGS = {
    f"pileus {module.__name__.rpartition('.')[2]}": module.COMMAND.flags
    for module in (plan, explain, orphans)
}


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        *((flag.name, flag.help) for flag in TABLE),
        *((flag.name, flag.help) for group in OWN_FLAGS.values() for flag in group.flags),
        *(
            (argument.name, argument.text)
            for verbs in NOUNS.values()
            for command in verbs.values()
            for argument in command.usage.arguments
        ),
    ],
)
def test_the_help_of_a_flag_is_one_short_text(flag: str, text: str):
    assert len(text) <= 160
    assert "\n" not in text
    assert text[0].isupper() or text[0] in "[-"
    assert text.endswith((".", "*"))
