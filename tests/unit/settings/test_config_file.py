"""The configuration file holds flags by name; a mistake is shown with file and line."""

import json
from pathlib import Path

import pytest

from pileus.app.settings import TABLE
from pileus.server.settings import SniPair
from pileus.settings.config_file import read_settings
from pileus.settings.flags import FlagError


def written(folder: Path, text: str) -> Path:
    path = folder / "pileus.yaml"
    path.write_text(text)
    return path


def test_every_kind_of_value_can_be_written_in_its_natural_form(tmp_path: Path):
    path = written(
        tmp_path,
        """\
cloud-provider: local
leader_elect: false
concurrent-node-syncs: 4
kube-api-qps: 50
min-resync-period: 100m
controllers: ["*", "-a,b"]
requestheader-allowed-names: a,b
tls-curve-preferences: [29, 23]
log-text-info-buffer-size: 2Ki
tls-sni-cert-key: ["a.crt,a.key:x.org,y.org"]
feature-gates: {CloudControllerManagerWebhook: true, AllBeta: false}
""",
    )

    assert read_settings(TABLE, path) == {
        "cloud-provider": "local",
        "leader-elect": False,
        "concurrent-node-syncs": 4,
        "kube-api-qps": 50.0,
        "min-resync-period": 6000.0,
        "controllers": ("*", "-a,b"),
        "requestheader-allowed-names": ("a", "b"),
        "tls-curve-preferences": (29, 23),
        "log-text-info-buffer-size": 2048,
        "tls-sni-cert-key": (SniPair("a.crt", "a.key", ("x.org", "y.org")),),
        "feature-gates": {"CloudControllerManagerWebhook": True, "AllBeta": False},
    }


def test_json_indented_with_tabs_is_read(tmp_path: Path):
    text = json.dumps({"cluster-name": "a", "leader-elect": True}, indent="\t")

    assert read_settings(TABLE, written(tmp_path, text)) == {
        "cluster-name": "a",
        "leader-elect": True,
    }


def test_an_empty_file_sets_nothing(tmp_path: Path):
    assert read_settings(TABLE, written(tmp_path, "# nothing yet\n")) == {}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "\ncluster-nam: a\n",
            ':2: unknown key "cluster-nam"',
            "did you mean cluster-name?",
        ),
        ("zzzzqq: 1", ':1: unknown key "zzzzqq"', ""),
        ("v: 1\nv: 2\n", ':2: key "v" is given twice', ""),
        ("cluster-name: a\ncluster_name: b", ':2: key "cluster_name" is given twice', ""),
        ("config: x", ':1: "config" can only be given on the command line', ""),
        ("help: true", ':1: "help" can only be given on the command line', ""),
        ("leader-elect: 1", ':1: "leader-elect" wants true or false, got a whole number', ""),
        ("leader-elect: 'true'", ':1: "leader-elect" wants true or false, got text', ""),
        ("cluster-name: 12", ':1: "cluster-name" wants text', ""),
        ("cluster-name:", ':1: "cluster-name" wants text', ""),
        ("cluster-name: {a: b}", ':1: "cluster-name" wants text', ""),
        ("secure-port: true", ':1: "secure-port" wants a whole number, got true or false', ""),
        ("secure-port: 2020-01-01", ':1: "secure-port" wants a whole number, got something', ""),
        (
            "min-resync-period: '10'",
            ':1: invalid value for "min-resync-period": time: missing unit in duration "10"',
            "",
        ),
        (
            "feature-gates: {Foo: true}",
            ':1: invalid value for "feature-gates": unrecognized feature gate: Foo',
            "",
        ),
        ("controllers: [[a]]", ':1: invalid value for "controllers": a list may hold only', ""),
        ("- a", ":1: expected a mapping of flag names to values", ""),
        ("[a]: b", ":1: expected the name of a flag", ""),
        ("a: b\n c: d\n", ":2: not valid YAML: mapping values are not allowed here", ""),
        ("a: !!python/object:x.y {}\n", ":1: not valid YAML: could not determine", ""),
        ("a: b\n---\nc: d\n", ":2: not valid YAML: but found another document", ""),
        ("a: \x07", ": not valid YAML: unacceptable character", ""),
    ],
)
def test_a_mistake_is_shown_with_file_and_line(tmp_path: Path, text: str, message: str, hint: str):
    path = written(tmp_path, text)

    with pytest.raises(FlagError) as caught:
        read_settings(TABLE, path)

    assert str(caught.value).startswith(f"{path}{message}")
    assert caught.value.hint == hint
    assert not caught.value.usage


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(FlagError, match=r"--config: cannot read .*absent: No such file"):
        read_settings(TABLE, tmp_path / "absent")
    with pytest.raises(FlagError, match="cannot read"):
        read_settings(TABLE, tmp_path)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FlagError, match="not UTF-8"):
        read_settings(TABLE, binary)
