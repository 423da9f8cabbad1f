"""Plugins are run when due, told what they ask for, and their mishaps are told to the user."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.exec import Command, ExecAuthorization, Finished, Missing, Plugin, plugin
from pileus.kube.config.kubeconfig import EnvironmentVariable, Exec
from pileus.kube.errors import CredentialsError
from pileus.pki import Authority, Subject
from tests.unit.kube.config.stage import NOON, HandClock, Stage

V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"
PLUGIN = Plugin(Command("/bin/login"), V1, "Get it at example.com", ("hush-env",))


def with_env(**variable: str) -> Exec:
    return Exec(api_version=BETA, command="a", env=(EnvironmentVariable(**variable),))


def printing(status: Mapping[str, object] | None, version: str = V1) -> bytes:
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return json.dumps(credential).encode()


class Plugins:
    """Stands in for the operating system: notes each start, and answers as told."""

    def __init__(self, *answers: Finished | CredentialsError) -> None:
        self.answers = list(answers)
        self.started = 0

    async def run(self, _command: Command, _deadline: float) -> Finished:
        self.started += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, CredentialsError):
            raise answer
        return answer


def token(value: str, expires: datetime | None = None) -> Finished:
    stamp = {"expirationTimestamp": expires.isoformat()} if expires else {}
    return Finished(0, printing({"token": value, **stamp}), "")


async def failure(*answers: Finished | CredentialsError) -> str:
    with pytest.raises(CredentialsError, match="/bin/login") as caught:
        await ExecAuthorization(PLUGIN, HandClock(), Plugins(*answers).run).header()
    return str(caught.value)


async def test_a_token_without_expiry_is_kept_until_it_is_rejected() -> None:
    clock, plugins = HandClock(), Plugins(token("a"), token("b"))
    authorization = ExecAuthorization(PLUGIN, clock, plugins.run)

    before = [await authorization.header() for _ in range(3)]
    clock.forward(86400)
    later = await authorization.header()
    authorization.rejected()

    assert {*before, later} == {"Bearer a"}
    assert await authorization.header() == "Bearer b"
    assert plugins.started == 2


async def test_an_expired_token_is_fetched_anew() -> None:
    clock = HandClock()
    plugins = Plugins(token("a", NOON + timedelta(minutes=5)), token("b"))
    authorization = ExecAuthorization(PLUGIN, clock, plugins.run)
    await authorization.header()

    clock.forward(299)
    before = await authorization.header()
    clock.forward(1)

    assert before == "Bearer a"
    assert await authorization.header() == "Bearer b"


async def test_a_plugin_that_prints_an_expired_token_is_told_with_both_times() -> None:
    said = await failure(token("a", NOON - timedelta(seconds=1)))

    assert "expired at 2030-01-01T11:59:59+00:00, and it is 2030-01-01T12:00:00+00:00" in said


async def test_a_certificate_may_come_with_or_without_a_token() -> None:
    pair = Authority("ca", now=NOON).issue(Subject(common_name="jane"), now=NOON)
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }
    finished = Finished(0, printing(status), "")
    authorization = ExecAuthorization(PLUGIN, HandClock(), Plugins(finished).run)

    assert await authorization.header() is None
    assert authorization.issued() == pair


async def test_a_missing_command_is_told_with_its_hint() -> None:
    said = await failure(Missing("/bin/login: it is not on the PATH"))

    assert said == "exec plugin /bin/login: it is not on the PATH\nGet it at example.com"


async def test_a_failing_command_is_told_with_what_it_says_but_not_with_secrets() -> None:
    said = await failure(Finished(3, b"hush-out", "denied for hush-env, token=hush-token"))

    assert said == "exec plugin /bin/login: exit code 3; it says: denied for ***, token=***"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        pytest.param(b"hush", "the 4 bytes that it printed are no ExecCredential", id="garbage"),
        pytest.param(b"", "the 0 bytes", id="nothing"),
        pytest.param(b'{"token": "hush"}', f"expected an ExecCredential of {V1}", id="other"),
        pytest.param(printing({"token": "hush"}, BETA), "apiVersion", id="version"),
        pytest.param(printing(None), "neither a token nor a certificate", id="no status"),
        pytest.param(printing({"token": ""}), "neither a token nor a certificate", id="empty"),
        pytest.param(printing({"token": 7}), "Expected `str.*token", id="type"),
        pytest.param(printing({"token": "hush hush"}), "holds blanks", id="blanks"),
        pytest.param(printing({"clientKeyData": "hush"}), "without the other", id="half"),
        pytest.param(
            printing({"clientKeyData": "hush", "clientCertificateData": "hush"}),
            "the certificate that it printed cannot be used",
            id="no pair",
        ),
        pytest.param(
            printing({"token": "hush", "expirationTimestamp": "soon"}), "RFC3339", id="time"
        ),
        pytest.param(
            printing({"token": "hush", "expirationTimestamp": "2031-01-01T00:00:00"}),
            "no time zone",
            id="zone",
        ),
    ],
)
async def test_garbage_is_told_but_not_quoted(output: bytes, said: str) -> None:
    with pytest.raises(CredentialsError, match=said) as caught:
        await ExecAuthorization(PLUGIN, HandClock(), Plugins(Finished(0, output, "")).run).header()

    assert "hush" not in str(caught.value)


def test_a_plugin_is_told_of_the_cluster_only_if_it_asks() -> None:
    cluster = {"server": "https://a"}

    def told(*, ask: bool) -> object:
        config = Exec(api_version=BETA, command="login", provide_cluster_info=ask)
        environ = plugin(config, Path("/etc"), {"HOME": "/root"}, cluster).command.environ
        assert environ["HOME"] == "/root"
        return json.loads(environ["KUBERNETES_EXEC_INFO"])

    expected: dict[str, object] = {"kind": "ExecCredential", "apiVersion": BETA}
    assert told(ask=False) == expected | {"spec": {"interactive": False}}
    assert told(ask=True) == expected | {"spec": {"interactive": False, "cluster": cluster}}


@pytest.mark.parametrize(
    ("command", "path"),
    [("login", "login"), ("./login", "/etc/k/login"), ("/bin/login", "/bin/login")],
)
def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(command: str, path: str) -> None:
    config = Exec(api_version=BETA, command=command)

    assert plugin(config, Path("/etc/k"), {}, {}).command.path == path


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Exec(api_version="client.authentication.k8s.io/v1alpha1", command="a"), "not supported"),
        (Exec(command="a"), "not supported"),
        (Exec(api_version=V1, command="a"), "interactiveMode must be given"),
        (Exec(api_version=BETA, command="a", interactive_mode="Always"), "needs a terminal"),
        (Exec(api_version=BETA, command="a", interactive_mode="Often"), "'Often' is none of"),
        (with_env(name="", value="x"), "variable without a name; give it one"),
        (with_env(name="A=B", value="x"), "named 'A=B'; put what follows = into its value"),
    ],
)
def test_plugins_that_cannot_work_are_told_at_the_start(config: Exec, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        plugin(config, Path("/etc"), {}, {})


def test_an_extension_that_contains_itself_is_refused(stage: Stage) -> None:
    stage.kubeconfig.write_text(f"""
current-context: here
contexts: [{{name: here, context: {{cluster: home, user: jane}}}}]
clusters:
- name: home
  cluster:
    server: http://127.0.0.1:1
    extensions: [{{name: client.authentication.k8s.io/exec, extension: &self [*self]}}]
users:
- {{name: jane, user: {{exec: {{apiVersion: {BETA}, command: a, provideClusterInfo: true}}}}}}
""")

    with pytest.raises(InvalidConfiguration, match=r"extension client.*/exec is not JSON"):
        stage.load()


async def _run(stage: Stage, text: str, **exec_fields: object) -> Mapping[str, str]:
    script = stage.script(text)
    block = {"apiVersion": BETA, "command": f"./{script.name}", **exec_fields}
    stage.write(
        {
            "server": "http://127.0.0.1:1",
            "certificate-authority-data": base64.b64encode(b"pem").decode(),
            "extensions": [
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
            ],
        },
        {"exec": block},
    )
    stage.environ["PATH"] = "/usr/bin:/bin"
    return await stage.load().credentials.headers()


@pytest.mark.real_time
async def test_a_real_command_gets_arguments_environment_and_cluster(stage: Stage) -> None:
    told = stage.folder / "told"
    printed = printing({"token": "T"}, BETA).decode()

    headers = await _run(
        stage,
        f"""printf %s "$KUBERNETES_EXEC_INFO" > {told}
        echo '{printed}' | sed "s/T/$1-$EXTRA/" """,
        args=["arg"],
        env=[{"name": "EXTRA", "value": "env"}],
        provideClusterInfo=True,
    )

    assert headers["Authorization"] == "Bearer arg-env"
    assert json.loads(told.read_text())["spec"]["cluster"] == {
        "server": "http://127.0.0.1:1",
        "certificate-authority-data": base64.b64encode(b"pem").decode(),
        "config": {"audience": "x"},
    }


@pytest.mark.real_time
async def test_a_real_command_that_fails_is_quoted(stage: Stage) -> None:
    with pytest.raises(CredentialsError, match="plugin: exit code 7; it says: log in first"):
        await _run(stage, "echo log in first >&2; exit 7")


@pytest.mark.real_time
async def test_a_real_command_that_is_missing_is_told(stage: Stage) -> None:
    stage.environ["PATH"] = str(stage.folder)
    block = {"apiVersion": BETA, "command": "no-such", "installHint": "Install it."}
    access = stage.load_user(exec=block)

    with pytest.raises(CredentialsError, match=r"no-such: it is not on the PATH.*\nInstall it\."):
        await access.credentials.headers()
