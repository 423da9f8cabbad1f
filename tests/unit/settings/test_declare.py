"""A setting is declared once; everything that shows, reads or checks it is derived from that."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tools import flags_reference

from pileus.app import help as help_text
from pileus.app.settings import SETTINGS, TABLE
from pileus.settings.checks import at_least_one, positive
from pileus.settings.config import Config, table_of
from pileus.settings.declare import (
    build,
    choice,
    flag_of,
    nested,
    optional,
    setting,
    shared,
    switch,
)
from pileus.settings.kinds import DURATION, INT32, STRINGS
from pileus.settings.sources import gather
from pileus.settings.values import Values

SECTION = "Coffee"


class Roast(StrEnum):
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoffeeSettings:
    brew_time: float = setting(
        "coffee-brew-time",
        DURATION,
        30.0,
        "Time for which coffee is brewed.",
        section=SECTION,
        check=positive,
        configz="Coffee.BrewTime",
    )
    cups: int | None = optional(
        "coffee-cups", INT32, 1, "Cups.", section=SECTION, check=at_least_one, configz="Coffee.Cups"
    )
    roast: Roast = choice("coffee-roast", Roast.DARK, "Roast.", section=SECTION)
    milk: bool = switch("coffee-milk", "With milk.", section=SECTION)

    def problems(self, _config: Config) -> Iterator[str]:
        if self.milk and self.roast is Roast.LIGHT:
            yield "--coffee-milk needs --coffee-roast=dark"


ALL = (*SETTINGS, CoffeeSettings)
WITH_COFFEE = table_of(ALL)


def configured(*arguments: str, environment: dict[str, str] | None = None) -> Config:
    return Config(ALL, gather(WITH_COFFEE, "pileus", arguments, environment or {}).values)


def test_a_declared_flag_is_in_help_under_its_section():
    text = help_text.full("pileus", WITH_COFFEE, 100)

    assert "\nCoffee flags:\n" in text
    assert "--coffee-brew-time duration   Time for which coffee is brewed. (default 30s)" in text
    assert text.index("Coffee flags") < text.index("Global flags")


def test_a_declared_flag_is_read_from_the_command_line():
    assert configured("--coffee-brew-time=1m")[CoffeeSettings].brew_time == 60.0


def test_a_declared_flag_is_read_from_the_environment():
    settings = configured(environment={"PILEUS_COFFEE_BREW_TIME": "1m"})[CoffeeSettings]

    assert settings.brew_time == 60.0


def test_a_declared_flag_is_a_key_of_the_configuration_file(tmp_path: Path):
    file = tmp_path / "pileus.yaml"
    file.write_text("coffee-brew-time: 1m\ncoffee-milk: true\n")

    settings = configured(f"--config={file}")[CoffeeSettings]

    assert (settings.brew_time, settings.milk) == (60.0, True)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--coffee-brew-time=0s", "coffee-brew-time must be greater than zero, but got 0s"),
        ("--coffee-cups=0", "coffee-cups must be at least 1, but got 0"),
        (
            "--coffee-roast=drak",
            'coffee-roast must be one of light, dark, but got "drak" (did you mean "dark"?)',
        ),
    ],
)
def test_a_declared_flag_is_checked(flag: str, problem: str):
    assert configured(flag).problems_of(CoffeeSettings) == (problem,)


def test_settings_are_checked_together():
    config = configured("--coffee-milk", "--coffee-roast=light")

    assert config.problems_of(CoffeeSettings) == ("--coffee-milk needs --coffee-roast=dark",)
    assert configured("--coffee-milk").problems_of(CoffeeSettings) == ()


def test_a_declared_flag_is_in_configz():
    document = configured("--coffee-brew-time=90s").configz()

    assert document["Coffee"] == {"BrewTime": "1m30s", "Cups": 1}


def test_a_declared_flag_is_in_the_reference():
    page = flags_reference.page(WITH_COFFEE)

    row = "| `--coffee-brew-time` | duration | `30s` | Time for which coffee is brewed. |"
    assert f"## Coffee\n\n| Flag | Type | Default | Meaning |\n|---|---|---|---|\n{row}\n" in page


def test_an_optional_setting_is_none_unless_it_was_given_even_if_it_equals_the_default():
    assert configured()[CoffeeSettings].cups is None
    assert configured("--coffee-cups=1")[CoffeeSettings].cups == 1


def test_settings_of_defaults_need_no_flags():
    assert CoffeeSettings() == build(CoffeeSettings, Values({}))


def test_a_value_that_cannot_be_used_is_refused_where_one_class_is_built():
    with pytest.raises(ValueError, match="coffee-cups must be at least 1, but got 0"):
        build(CoffeeSettings, Values({"coffee-cups": 0}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TeaSettings:
    brew_time: float = setting("coffee-brew-time", DURATION, 3.0, "Tea.", section="Tea")


def test_a_flag_that_is_declared_twice_is_refused_with_both_places():
    with pytest.raises(ValueError, match="declared twice") as caught:
        table_of((CoffeeSettings, TeaSettings))

    assert str(caught.value) == (
        f"flag --coffee-brew-time is declared twice, by {__name__}.CoffeeSettings.brew_time and by "
        f"{__name__}.TeaSettings.brew_time: remove or rename one of them"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    ports: tuple[str, ...] = setting(
        "ports", STRINGS, ("a",), "Ports; see --hosts.", details="Not --help.", section="Part"
    )
    hosts: tuple[str, ...] = setting("hosts", STRINGS, (), "Hosts.", section="Part")
    label: str = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    first: Part = nested(Part)
    second: Part = nested(
        Part,
        prefix="other-",
        section="Other",
        changes={"ports": {"default": ("b",)}, "label": {"default": "second"}},
        omit=("hosts",),
    )


def test_a_nested_class_can_be_used_again_with_a_prefix_and_other_defaults():
    names = [
        (group.title, [flag.name for flag in group.flags]) for group in table_of([Whole]).groups
    ]
    made = build(Whole, Values({"ports": ("x",), "other-ports": ("y",)}))

    assert names == [("Part", ["ports", "hosts"]), ("Other", ["other-ports"])]
    assert (made.first.ports, made.second.ports) == (("x",), ("y",))
    assert (Whole().first.ports, Whole().second.ports) == (("a",), ("b",))
    assert (made.first.label, made.second.label) == ("first", "second")


def test_a_prefix_is_added_to_the_flags_of_the_class_that_a_text_mentions():
    flag = flag_of(Whole, "second.ports")

    assert flag.help == "Ports; see --other-hosts."
    assert flag.details == "Not --help."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    coffee: CoffeeSettings = shared(CoffeeSettings)


def test_a_shared_class_has_the_same_values_and_declares_no_flag_again():
    values = Values({"coffee-milk": True})

    assert [flag.name for flag in table_of([Guest])] == []
    assert build(Guest, values).coffee == build(CoffeeSettings, values)


def test_other_settings_of_one_class_leave_the_rest_as_it_was():
    config = configured("--coffee-milk")

    changed = config.having(CoffeeSettings(roast=Roast.LIGHT))

    assert changed[CoffeeSettings].roast is Roast.LIGHT
    assert config[CoffeeSettings].roast is Roast.DARK
    assert changed.classes == config.classes


def test_the_program_has_no_flag_of_these_tests():
    assert [flag.name for flag in TABLE if flag.name.startswith("coffee")] == []


def test_every_default_of_the_program_passes_its_check():
    config: Any = Config(SETTINGS, Values({}))

    assert [
        problem
        for cls in SETTINGS
        for problem in config.problems_of(cls, enabled=True)
        if problem != "--cloud-provider cannot be empty"
    ] == []
