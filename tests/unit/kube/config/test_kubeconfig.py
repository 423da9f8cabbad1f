"""A kubeconfig means what kubectl takes it to mean, and its faults are told by place."""

import base64
import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.config.choose import load_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.kubeconfig import Cluster, User, parse, read_kubeconfig, select
from pileus.pki import Authority, Subject
from pileus.telemetry.log import VALUES
from tests.unit.kube.config.stage import NOON, Stage, authorization, document

YAML = """
apiVersion: v1
kind: Config
current-context: here
preferences: {}
clusters:
- name: home
  cluster:
    server: http://127.0.0.1:8080
- name: 2024-01-01
  cluster: null
contexts:
- name: here
  context: {cluster: home, user: jane, namespace: web}
users:
- name: jane
  user:
    token: t0ken
    exec: null
    unknown-to-us: {a: b}
"""


async def test_yaml_is_read_with_nulls_and_unknown_fields(stage: Stage) -> None:
    stage.kubeconfig.write_text(YAML)

    access = stage.load()

    assert access.server == "http://127.0.0.1:8080"
    assert access.namespace == "web"
    assert await authorization(access) == "Bearer t0ken"


async def test_basic_authentication(stage: Stage) -> None:
    access = stage.load_user(username="jane", password="pa:ss")

    assert await authorization(access) == "Basic amFuZTpwYTpzcw=="


async def test_a_context_without_user_is_nobody(stage: Stage) -> None:
    config = document({"server": "http://127.0.0.1:1"}, {"token": "x"})
    config["contexts"] = [{"name": "here", "context": {"cluster": "home"}}]
    stage.kubeconfig.write_text(json.dumps(config))

    assert await authorization(stage.load()) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"current-context": "hre"}, 'did you mean "here"', id="context"),
        pytest.param({"current-context": None}, "not set; its contexts: here", id="none"),
        pytest.param({"users": []}, "the user 'jane', which is not in the file", id="user"),
        pytest.param({"clusters": [{"name": "hom"}]}, 'did you mean "hom"', id="cluster"),
        pytest.param({"users": [{"name": "a"}, {"name": "a"}]}, "'a' occurs twice", id="twice"),
        pytest.param({"kind": "Pod"}, "'v1 Pod'; expected v1 Config", id="kind"),
        pytest.param({"clusters": {}}, r"Expected `array.*\$.clusters", id="type"),
        pytest.param({"contexts": [{"name": "here"}]}, "'here' is empty", id="empty"),
        pytest.param({"clusters": [{"name": "home"}]}, "names no server", id="server"),
    ],
)
def test_what_is_wrong_is_told(stage: Stage, change: dict[str, object], said: str) -> None:
    config = document({"server": "http://127.0.0.1:1"}, {}) | change
    stage.kubeconfig.write_text(json.dumps(config))

    with pytest.raises(InvalidConfiguration, match=said) as caught:
        stage.load()

    assert str(stage.kubeconfig) in str(caught.value)


def test_malformed_yaml_is_told_with_line_and_column(stage: Stage) -> None:
    stage.kubeconfig.write_text("apiVersion: v1\nusers:\n- name: jane: joe\n")

    with pytest.raises(InvalidConfiguration, match="line 3, column 13: mapping values"):
        stage.load()


def test_malformed_json_is_told_with_line_and_column(stage: Stage) -> None:
    stage.kubeconfig.write_text('{"users":\n ["a", }')

    with pytest.raises(InvalidConfiguration, match="line 2, column"):
        stage.load()


@pytest.mark.parametrize("text", [b"\x00\x01", b"\xff\xfe\xfd", b"- just\n- a list", b"word"])
def test_a_file_that_is_something_else_is_told(stage: Stage, text: bytes) -> None:
    stage.kubeconfig.write_bytes(text)

    with pytest.raises(InvalidConfiguration, match="not a kubeconfig|it is not"):
        stage.load()


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({"auth-provider": {"name": "gcp"}}, "'gcp' was removed.*use an exec plugin"),
        ({"token": "a", "username": "b"}, "only one is allowed"),
        ({"token": "two words"}, "the token holds blanks"),
        ({"client-certificate-data": "!"}, "client-certificate-data is not base64"),
        ({"as-groups": ["g"]}, "need `as`"),
        ({"tokenFile": "nope"}, "cannot read token file .*/nope: No such file"),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "needs a command"),
    ],
)
def test_a_user_that_cannot_be_is_told(stage: Stage, user: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        stage.load_user(**user)


@pytest.mark.parametrize(
    ("server", "meant"),
    [
        ("https://a:6443/", "https://a:6443"),
        ("https://[fd00::1]:6443/k8s/", "https://[fd00::1]:6443/k8s"),
        ("a:8080", "http://a:8080"),
        ("HTTPS://A", "https://a"),
    ],
)
def test_servers_have_one_spelling(stage: Stage, server: str, meant: str) -> None:
    stage.write({"server": server}, {})

    assert stage.load().server == meant


def test_a_server_without_scheme_is_https_where_tls_is_configured(stage: Stage) -> None:
    stage.write({"server": "a:6443", "insecure-skip-tls-verify": True}, {})

    assert stage.load().server == "https://a:6443"


@pytest.mark.parametrize(
    "server", ["ftp://a", "https://", "https://a:b", "https://[::1", "ftp://u:hush@a", "a?b=c"]
)
def test_servers_that_are_none_are_told(stage: Stage, server: str) -> None:
    stage.write({"server": server}, {})

    with pytest.raises(InvalidConfiguration, match="server") as caught:
        stage.load()

    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "meant"),
    [("https://u:hu%40sh@a", "https://a"), ("u:hu%40sh@a:8080", "http://a:8080")],
)
async def test_a_password_in_the_server_s_url_is_used_and_not_shown(
    stage: Stage, server: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.write({"server": server}, {})
    access = stage.load()

    assert access.server == meant
    told = base64.b64encode(b"u:hu@sh").decode()
    assert await access.credentials.headers() == {"Authorization": f"Basic {told}"}
    (record,) = (each for each in caplog.records if "put it under `user`" in each.getMessage())
    assert vars(record)[VALUES] == {"server": meant}


async def test_credentials_of_the_user_take_precedence_over_a_password_in_the_url(
    stage: Stage,
) -> None:
    stage.write({"server": "https://u:hush@a"}, {"token": "t"})

    assert await stage.load().credentials.headers() == {"Authorization": "Bearer t"}


async def test_impersonation_has_a_header_for_each_group(stage: Stage) -> None:
    user = {
        "as": "joe",
        "as-uid": "42",
        "as-groups": ["a", "b"],
        "as-user-extra": {"acme.com/Näme": ["x", "y"]},
    }

    headers = await stage.load_user(**user).credentials.headers()

    assert list(headers.items()) == [
        ("Impersonate-User", "joe"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-acme.com%2FN%C3%A4me", "x"),
        ("Impersonate-Extra-acme.com%2FN%C3%A4me", "y"),
    ]


def test_control_characters_cannot_smuggle_headers_in(stage: Stage) -> None:
    with pytest.raises(InvalidConfiguration, match="control characters"):
        stage.load_user(**{"as": "joe\r\nX-Evil: 1"})


MARK = "Zq7w"
SECRETS = st.text(string.ascii_letters + string.digits + "*&!{}[]:#'\"%@`\t ").map(
    lambda text: text + MARK
)


@given(SECRETS)
def test_no_error_about_malformed_text_quotes_it(secret: str) -> None:
    said = ""
    try:
        parse(f"token: {secret}\nmore: [".encode(), "it")
    except InvalidConfiguration as e:
        said = str(e)

    assert said.startswith("it is not YAML")
    assert MARK not in said


@given(SECRETS, st.sampled_from(["token", "password", "client-key-data", "exec", "as-groups"]))
def test_no_error_about_a_user_quotes_its_secret(
    tmp_path_factory: pytest.TempPathFactory, secret: str, field: str
) -> None:
    path = tmp_path_factory.mktemp("k") / "config"
    path.write_text(json.dumps(document({}, {field: [secret, 1], "username": secret})))

    with pytest.raises(InvalidConfiguration) as caught:
        select(read_kubeconfig(path))

    assert MARK not in str(caught.value)


def test_a_parsed_user_shows_nothing_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(document({}, {"token": "hush", "exec": {"args": ["hush"]}})))

    config = read_kubeconfig(path)

    assert "hush" not in repr(config) + repr(select(config))


def texts_in(annotation: Any) -> Iterator[Any]:
    """A value for each way to put a NUL byte into a field of that type."""
    if annotation is str:
        yield "a\0b"
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        for field in msgspec.structs.fields(annotation):
            yield from ({field.encode_name: value} for value in texts_in(field.type))
    elif get_origin(annotation) is dict:
        yield from ({"key": value} for value in texts_in(get_args(annotation)[1]))
        yield {"a\0b": []}
    elif get_origin(annotation) is tuple:
        yield from ([value] for value in texts_in(get_args(annotation)[0]))
    else:
        for part in get_args(annotation):
            yield from texts_in(part)


@pytest.mark.parametrize("user", list(texts_in(User)), ids=str)
def test_no_field_of_a_user_may_hold_a_nul_byte(stage: Stage, user: dict[str, Any]) -> None:
    stage.write({"server": "http://127.0.0.1:1"}, user)

    with pytest.raises(InvalidConfiguration, match=r"user\.\S+ holds a NUL byte; remove it"):
        stage.load()


@pytest.mark.parametrize("cluster", list(texts_in(Cluster)), ids=str)
def test_no_field_of_a_cluster_may_hold_a_nul_byte(stage: Stage, cluster: dict[str, Any]) -> None:
    stage.write(cluster, {})

    with pytest.raises(InvalidConfiguration, match=r"cluster\.\S+ holds a NUL byte; remove it"):
        stage.load()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record for record in caplog.records if "world-readable" in record.getMessage()]
    return [str(getattr(record, VALUES)) for record in told]


def test_world_readable_files_with_secrets_are_warned_of_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Authority("ca", now=NOON).issue(Subject(common_name="c"), now=NOON)
    files = {"key": pair.key, "crt": pair.certificate, "token": b"abc"}
    for name, content in files.items():
        (stage.folder / name).write_bytes(content)
        (stage.folder / name).chmod(0o644)
    user = {"client-certificate": "crt", "client-key": "key", "tokenFile": "token"}
    stage.write({"server": "https://127.0.0.1:1"}, user)
    stage.kubeconfig.chmod(0o644)

    stage.load()
    stage.load()

    told = warnings(caplog)
    assert len(told) == 3  # a certificate is no secret
    for name, kind in (("config", "kubeconfig"), ("key", "client-key"), ("token", "tokenFile")):
        path = str(stage.folder / name)
        assert [line for line in told if path in line and kind in line and "0644" in line]
        assert any(f"chmod o-r {path}" in line for line in told)


def test_private_files_and_a_pods_own_are_not_warned_of(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority("ca", now=NOON).certificate
    mounted = stage.mount_service_account("abc", authority) / "token"
    mounted.chmod(0o644)
    (stage.folder / "token").write_text("abc")
    (stage.folder / "token").chmod(0o640)
    stage.write({"server": "http://127.0.0.1:1"}, {"tokenFile": "token"})
    stage.kubeconfig.chmod(0o600)

    stage.load()
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    load_access("", "", environ, stage.here)

    assert warnings(caplog) == []
