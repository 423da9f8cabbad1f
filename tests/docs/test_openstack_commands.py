"""Commands of the client `openstack` that the product prints, or that a page shows.

No test runs them: the client is not installed with the OpenStack services of the tests
(`make testbed-openstack`), and some of them change quotas and roles, for which the manager has no
credentials. So each is compared with the syntax in the client's documentation
(docs.openstack.org/python-openstackclient/latest/cli and python-octaviaclient/latest/cli).
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.providers.openstack.checks import FLAGS
from tests.unit.test_printed_commands import SOURCE, texts

ROOT = Path(__file__).parents[2]
QUOTAS = ("--floating-ips", "--instances", "--ports", "--secgroup-rules", "--secgroups")
SHOWN = ("--column", "--format")
SYNTAX: dict[str, tuple[tuple[str, ...], int, int]] = {
    "catalog list": ((), 0, 0),
    "endpoint list": ((), 0, 0),
    "endpoint set": (("--url",), 1, 1),
    "floating ip create": (("--floating-ip-address", "--project"), 1, 1),
    "floating ip list": ((), 0, 0),
    "floating ip set": (("--tag",), 1, 1),
    "floating ip show": (SHOWN, 1, 1),
    "floating ip unset": (("--port",), 1, 1),
    "loadbalancer delete": (("--cascade",), 1, 1),
    "loadbalancer failover": ((), 1, 1),
    "loadbalancer list": (SHOWN, 0, 0),
    "loadbalancer quota set": (("--loadbalancer",), 1, 1),
    "loadbalancer quota show": ((), 1, 1),
    "loadbalancer set": (("--tag",), 1, 1),
    "loadbalancer show": (SHOWN, 1, 1),
    "loadbalancer status show": ((), 1, 1),
    "network list": (("--external", "--sort-column"), 0, 0),
    "port delete": ((), 1, 99),
    "port list": (("--server",), 0, 0),
    "port set": (("--allowed-address",), 1, 1),
    "port show": ((), 1, 1),
    "quota set": (QUOTAS, 1, 1),
    "quota show": (("--usage",), 0, 1),
    "role add": (("--project", "--user"), 1, 1),
    "role assignment list": (("--names",), 0, 0),
    "router add subnet": ((), 2, 2),
    "security group rule create": (("--dst-port", "--protocol", "--remote-ip"), 1, 1),
    "server list": ((), 0, 0),
    "server set": (("--name", "--property"), 1, 1),
    "subnet list": (("--network",), 0, 0),
}
"""Options that are used, and the least and highest number of other words."""
SWITCHES = {"--cascade", "--external", "--names", "--usage"}
"""Options without a value. `floating ip unset --port` has none either."""
FIRST = "|".join(sorted({name.split()[0] for name in SYNTAX}))
COMMAND = re.compile(
    rf"\bopenstack (?P<words>(?:{FIRST}) .*?)(?=   # |[`)|\n]|,? (?:\(|or |>)|[,.;](?: |$)|$)"
)


def problem(words: str) -> str:
    """Returns what is wrong with a command; empty: nothing."""
    given = shlex.split(words)
    name = next(
        (one for one in sorted(SYNTAX, reverse=True) if f"{words} ".startswith(f"{one} ")), ""
    )
    if not name:
        return "no such command"
    options, least, most = SYNTAX[name]
    rest, others = given[len(name.split()) :], 0
    while rest:
        word, _, value = rest.pop(0).partition("=")
        if not word.startswith("--"):
            others += 1
            continue
        if word not in options:
            return f"no option {word}"
        if not value and word not in SWITCHES and name != "floating ip unset":
            if not rest or rest[0].startswith("--"):
                return f"{word} without a value"
            rest.pop(0)
    return "" if least <= others <= most else f"{others} arguments"


def printed() -> Iterator[tuple[str, str]]:
    """Yields the texts that name commands, with their files."""
    for path in (SOURCE / "providers" / "openstack").rglob("*.py"):
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            for flag in FLAGS.values() if "{flag}" in text else ("",):
                # what is only known when the program runs is one word
                yield path.name, re.sub(r"\{\w+\}|…", "X", text.replace("{flag}", flag))
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "differences.md":  # names commands without their arguments
            yield page.name, page.read_text(encoding="utf-8")


def commands() -> Iterator[tuple[str, str]]:
    for name, text in printed():
        yield from ((name, one["words"].strip()) for one in COMMAND.finditer(text))


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("port delete a b", ""),
        ("port delete", "0 arguments"),
        ("quota set --ports 5", "0 arguments"),
        ("quota set --ports", "--ports without a value"),
        ("quota set --port 5 PROJECT", "no option --port"),
        ("quota raise PROJECT", "no such command"),
        ("role assignment list --names", ""),
    ],
)
def test_a_command_that_the_client_does_not_have_is_found(words: str, wrong: str):
    assert problem(words) == wrong


def test_every_printed_command_is_one_of_the_client():
    found = [*commands()]

    assert {"port delete", "quota set", "loadbalancer quota set", "role add"} <= {
        next((one for one in sorted(SYNTAX, reverse=True) if words.startswith(one)), "")
        for _, words in found
    }
    assert len(found) > 40
    assert [(name, words, problem(words)) for name, words in found if problem(words)] == []
