"""Settings come from the command line, the environment and a file, in this order."""

from pathlib import Path

import pytest

from pileus.app.settings import TABLE, CommandSettings, ManagerSettings, build_config
from pileus.app.version_flag import VersionRequest
from pileus.cloud.choice import CloudSettings
from pileus.kube.settings import ClientSettings
from pileus.objects.settings import ClusterSettings
from pileus.runtime.settings import LeaderElectionSettings
from pileus.server.settings import ServerSettings
from pileus.settings.declare import build, flag_of
from pileus.settings.flags import FlagError
from pileus.settings.sources import Settings, gather
from pileus.settings.values import Source

CONTROLLERS = flag_of(ManagerSettings, "controllers")


def read(*arguments: str, environment: dict[str, str] | None = None) -> Settings:
    return gather(TABLE, "cloud-controller-manager", arguments, environment or {})


def test_every_flag_has_an_environment_variable():
    given = read(environment={"PILEUS_LEADER_ELECT": "false", "PILEUS_CONTROLLERS": "a,b"})

    assert build(LeaderElectionSettings, given.values).enabled is False
    assert given.values[CONTROLLERS] == ("a", "b")
    assert given.values.source(CONTROLLERS) is Source.ENVIRONMENT


def test_a_flag_replaces_the_list_of_the_environment():
    given = read("--controllers=c", environment={"PILEUS_CONTROLLERS": "a,b"})

    assert given.values[CONTROLLERS] == ("c",)


def test_help_and_version_are_not_taken_from_the_environment():
    given = read(environment={"PILEUS_HELP": "true", "PILEUS_VERSION": "nonsense"})

    assert build(CommandSettings, given.values).help is False


def test_a_wrong_value_in_the_environment_names_the_variable():
    with pytest.raises(FlagError) as caught:
        read(environment={"PILEUS_MIN_RESYNC_PERIOD": "10"})

    assert str(caught.value) == (
        'environment variable PILEUS_MIN_RESYNC_PERIOD: invalid value "10": '
        'time: missing unit in duration "10"'
    )
    assert not caught.value.usage


def test_a_mistyped_variable_is_pointed_out_but_those_of_a_service_are_left_alone():
    given = read(
        environment={
            "PILEUS_LEADER_ELEKT": "false",
            "PILEUS_SERVICE_HOST": "10.0.0.1",
            "PILEUS_PORT_443_TCP_ADDR": "10.0.0.1",
            "HOME": "/",
        }
    )

    assert given.notes == (
        "Environment variable PILEUS_LEADER_ELEKT is not used (did you mean PILEUS_LEADER_ELECT?)",
    )


def test_variables_that_switch_features_of_go_s_client_library_change_nothing():
    variables = {"KUBE_FEATURE_WatchListClient": "false", "KUBE_FEATURE_Nonsense": "x"}

    given, usual = read(environment=variables), read()

    assert (given.values, given.notes) == (usual.values, usual.notes)


def test_a_stray_word_is_refused_with_a_hint_about_switches():
    with pytest.raises(FlagError) as caught:
        read("--leader-elect", "false", "")

    assert str(caught.value) == (
        '"cloud-controller-manager" does not take any arguments, got ["false" ""]'
    )
    assert "--name=false" in caught.value.hint
    assert not caught.value.usage


def test_empty_words_are_tolerated():
    assert read("", "").values.given(CONTROLLERS) is False


def test_a_deprecated_flag_is_pointed_out():
    assert read("--allow-untagged-cloud=true", "--node-sync-period=3s").notes == (
        (
            "Flag --allow-untagged-cloud has been deprecated, "
            "a cluster ID on the cloud's instances will be required"
        ),
        "Flag --node-sync-period has been deprecated, it has no effect",
    )


def test_file_environment_and_flags_are_layered(tmp_path: Path):
    file = tmp_path / "pileus.yaml"
    file.write_text("cluster-name: file\ncluster-cidr: file\ncloud-provider: file\n")

    given = read(
        "--cluster-name=flag",
        environment={
            "PILEUS_CONFIG": str(file),
            "PILEUS_CLUSTER_NAME": "environment",
            "PILEUS_CLUSTER_CIDR": "environment",
        },
    )

    assert build(ClusterSettings, given.values).name == "flag"
    assert build(ClusterSettings, given.values).cidr == "environment"
    assert build(CloudSettings, given.values).provider == "file"


def test_a_rate_limit_counts_only_when_somebody_gave_it():
    assert build_config(read().values)[ClientSettings].qps is None

    limited = build_config(read("--kube-api-qps=20", "--kube-api-burst=30").values)[ClientSettings]

    assert (limited.qps, limited.burst) == (20.0, 30)


def version(*arguments: str) -> VersionRequest:
    return build(CommandSettings, read(*arguments).values).version


def test_the_version_to_report_can_be_changed_and_asked_for_in_any_order():
    overridden = version("--version=v1.37.1-eks", "--version=true")

    assert (overridden.answer() or "").split()[:2] == ["Kubernetes", "v1.37.1-eks"]
    assert version("--version=v1.37.1+x").answer() is None
    assert version("--version=false").answer() is None
    raw = version("--version=raw").answer()
    assert raw is not None
    assert raw.startswith('version.Info{GitVersion:"v1.37.1", ')


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("v1.37.2", 'version "v1.37.2" must match major/minor/patch of default version "v1.37.1"'),
        ("v1.37", 'invalid version "v1.37": expected vX.Y.Z with an optional suffix'),
        ("x", 'strconv.ParseBool: parsing "x": invalid syntax'),
    ],
)
def test_a_version_that_cannot_be_ours_is_refused(word: str, message: str):
    with pytest.raises(FlagError) as caught:
        read(f"--version={word}")

    assert str(caught.value) == f'invalid argument "{word}" for "--version" flag: {message}'


def test_an_empty_address_means_every_interface():
    config = build_config(read("--bind-address=").values)

    assert config[ServerSettings].serving.bind_address == "0.0.0.0"
