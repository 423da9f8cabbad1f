"""Which clouds are selected by flags or by the list in the configuration file."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pileus.app.settings import TABLE, build_config
from pileus.app.validate import problems
from pileus.cloud.choice import CloudChoice, CloudSettings, InvalidClouds, read_clouds
from pileus.settings.config import Config
from pileus.settings.flags import FlagError
from pileus.settings.sources import gather

PRIVATE = CloudChoice(
    name="private", provider="openstack", config_file="/etc/os.yaml", classes=("a.b/c",)
)
AWS = CloudChoice(name="aws", provider="aws", default=False)


def configured(*arguments: str, environment: Mapping[str, str] | None = None) -> Config:
    return build_config(gather(TABLE, "pileus", arguments, environment or {}).values)


def configured_by(folder: Path, text: str, *arguments: str) -> Config:
    path = folder / "pileus.yaml"
    path.write_text(text)
    return configured(f"--config={path}", *arguments)


def test_a_single_provider_and_its_file_are_taken_as_written():
    config = configured("--cloud-provider=aws", "--cloud-config=/etc/a,b.yaml")

    assert config[CloudSettings].clouds == (
        CloudChoice(name="aws", provider="aws", config_file="/etc/a,b.yaml", default=True),
    )
    assert problems(config) == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param("a.yaml,b.yaml", ("a.yaml", "b.yaml"), id="one each"),
        pytest.param(",b.yaml", ("", "b.yaml"), id="none for the first"),
        pytest.param("", ("", ""), id="none at all"),
    ],
)
def test_several_providers_have_a_file_each_and_the_first_is_the_default(
    files: str, expected: tuple[str, ...]
):
    config = configured("--cloud-provider=openstack, aws", f"--cloud-config={files}")

    assert [cloud.name for cloud in config[CloudSettings].clouds] == ["openstack", "aws"]
    assert tuple(cloud.config_file for cloud in config[CloudSettings].clouds) == expected
    assert [cloud.default for cloud in config[CloudSettings].clouds] == [True, False]
    assert problems(config) == ()


def test_several_providers_can_be_given_in_the_environment():
    config = configured(environment={"PILEUS_CLOUD_PROVIDER": "openstack,aws"})

    assert [cloud.name for cloud in config[CloudSettings].clouds] == ["openstack", "aws"]


LISTED = """\
clouds:
- name: private
  provider: openstack
  cloud-config: /etc/os.yaml
  classes: [a.b/c]
  default: true
- provider: aws
"""


def test_the_file_can_list_clouds_with_names_and_classes(tmp_path: Path):
    config = configured_by(tmp_path, LISTED)

    assert config[CloudSettings].clouds == (PRIVATE, AWS)
    assert problems(config) == ()


def test_the_only_cloud_in_the_list_is_the_default_unless_it_says_otherwise():
    (only,) = read_clouds([{"provider": "aws"}])
    (other,) = read_clouds([{"provider": "aws", "default": False}])

    assert only.default
    assert not other.default


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param([], "expected a list of clouds", id="an empty list"),
        pytest.param("aws", "expected a list of clouds", id="not a list"),
        pytest.param(["aws"], r"clouds\[0\]: expected a mapping", id="not a mapping"),
        pytest.param([{"name": "a"}], r"clouds\[0\]\.provider: expected", id="no provider"),
        pytest.param(
            [{"provider": "aws", "cloud_config": "x"}],
            r'clouds\[0\]: unknown key "cloud_config" \(did you mean "cloud-config"\?\)',
            id="unknown key",
        ),
        pytest.param(
            [{"provider": "aws", "name": 3}],
            r"clouds\[0\]\.name: expected text, got 3",
            id="a number for a name",
        ),
        pytest.param(
            [{"provider": "aws", "default": "yes"}],
            r"clouds\[0\]\.default: expected true or false, got 'yes'",
            id="text for a truth value",
        ),
        pytest.param(
            [{"provider": "aws", "classes": "a.b/c"}],
            r"clouds\[0\]\.classes: expected a list",
            id="text for a list",
        ),
        pytest.param(
            [{"provider": "aws", "classes": ["fast"]}],
            r"clouds\[0\]\.classes: 'fast' must be a name such as example\.com/fast",
            id="a class without a domain",
        ),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(document: object, message: str):
    with pytest.raises(InvalidClouds, match=message):
        read_clouds(document)


def test_a_mistake_in_the_list_is_shown_with_file_and_line(tmp_path: Path):
    with pytest.raises(FlagError, match=r'pileus\.yaml:2: clouds\[0\]: unknown key "proivder"'):
        configured_by(tmp_path, "cluster-name: x\nclouds: [{proivder: aws}]\n")


def test_the_list_cannot_be_given_on_the_command_line():
    with pytest.raises(FlagError, match="clouds can only be given in the file of --config"):
        configured("--clouds=aws")


def test_the_list_is_not_read_from_the_environment():
    config = configured("--cloud-provider=a", environment={"PILEUS_CLOUDS": "b"})

    assert [cloud.name for cloud in config[CloudSettings].clouds] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param((), "--cloud-provider cannot be empty", id="none"),
        pytest.param(
            ("--cloud-provider=a,b", "--cloud-config=x"),
            "--cloud-config=x has 1 entry, but --cloud-provider=a,b has 2: give one file per "
            "provider in the same order, an empty entry for none",
            id="one file for two",
        ),
        pytest.param(
            ("--cloud-provider=a,b", "--cloud-config=x,y,z"),
            "--cloud-config=x,y,z has 3 entries, but --cloud-provider=a,b has 2: give one file "
            "per provider in the same order, an empty entry for none",
            id="three files for two",
        ),
        pytest.param(
            ("--cloud-provider=a,b,a",),
            '--cloud-provider lists "a" twice (entries 1 and 3): remove one, or name each in the '
            "list clouds in the file of --config",
            id="one twice",
        ),
        pytest.param(
            ("--cloud-provider=a,",),
            "--cloud-provider: entry 2 of the list is empty: remove it",
            id="an empty entry",
        ),
        pytest.param(
            ("--cloud-provider=a,b@c",),
            '"b@c" is not a valid name of a cloud: use at most 63 lower case letters, digits and '
            "'-' between them",
            id="a name with other signs",
        ),
        pytest.param(
            ("--cloud-provider=a,b", "--service-classes=x.y/z,-"),
            "--service-classes=x.y/z does not say which of the clouds a, b serves them: list "
            "classes per cloud in the list clouds in the file of --config",
            id="classes of no particular cloud",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_reported(arguments: tuple[str, ...], message: str):
    assert problems(configured(*arguments)) == (message,)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        pytest.param(
            LISTED,
            ("--cloud-provider=local",),
            "--cloud-provider=local and the list clouds (private, aws) in the file of --config "
            "both select clouds: remove --cloud-provider or the list",
            id="both forms",
        ),
        pytest.param(
            "clouds: [{provider: a, name: x}, {provider: b, name: x}]",
            (),
            'clouds[0] (provider a) and clouds[1] (provider b) are both named "x": give each its '
            "own name",
            id="two with one name",
        ),
        pytest.param(
            "clouds: [{provider: a, default: true}, {provider: b, default: true}]",
            (),
            'clouds "a" and "b" both have default: true: at most one cloud can serve Services '
            "without a load balancer class; remove one",
            id="two defaults",
        ),
        pytest.param(
            "clouds: [{provider: a, classes: [x.y/z]}, {provider: b, classes: [x.y/z]}]",
            (),
            'clouds "a" and "b" both list the class "x.y/z": remove it from one of them',
            id="one class of two",
        ),
        pytest.param(
            "clouds: [{provider: a}, {provider: b, classes: [pileus.dev/a]}]",
            (),
            'cloud "b" lists the class "pileus.dev/a", which cloud "a" serves by its name: remove '
            'it from cloud "b"',
            id="the class of another cloud",
        ),
    ],
)
def test_a_list_that_contradicts_itself_or_flags_is_reported(
    tmp_path: Path, text: str, arguments: tuple[str, ...], message: str
):
    assert problems(configured_by(tmp_path, text, *arguments)) == (message,)
