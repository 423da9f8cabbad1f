"""Whether a configuration makes sense. All problems are reported together."""

from collections.abc import Iterable, Iterator

from pileus.admission.names import WEBHOOKS
from pileus.admission.settings import WebhookSettings
from pileus.app.registry import CONTROLLERS
from pileus.app.settings import ManagerSettings
from pileus.cloud.choice import CloudSettings
from pileus.settings.config import Config
from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean
from pileus.telemetry.settings import LogSettings

_STOCK = tuple(names.canonical for names in CONTROLLERS.names)
_WEBHOOKS = tuple(each.name for each in WEBHOOKS)


def logging_problems(config: Config) -> tuple[str, ...]:
    """Returns what is wrong with the logging flags. They decide how other problems are logged."""
    return config.problems_of(LogSettings)


def problems(
    config: Config, *, controllers: Iterable[str] = _STOCK, webhooks: Iterable[str] = _WEBHOOKS
) -> tuple[str, ...]:
    """Returns all that is wrong, with the Go program's messages where it has any.

    `controllers`, `webhooks`: the names that exist (a provider may bring its own).
    """
    entries = config[ManagerSettings].controllers
    enabled = {each.settings for each in CONTROLLERS.enabled(entries)}
    others = [cls for cls in config.classes if cls not in {LogSettings, CloudSettings}]
    found = [
        *_unknown(entries, controllers, "controllers"),
        *_unknown(config[WebhookSettings].entries, webhooks, "webhooks"),
        *(one for cls in others for one in config.problems_of(cls, enabled=cls in enabled)),
        *config.problems_of(CloudSettings),
    ]
    return tuple(dict.fromkeys(found))


def together(found: tuple[str, ...]) -> str:
    """Returns one message for all problems: `a`, or `[a, b, c]`."""
    unique = tuple(dict.fromkeys(found))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def _unknown(entries: Iterable[str], known: Iterable[str], what: str) -> Iterator[str]:
    names = tuple(known)
    for word in CONTROLLERS.unknown(entries, names):
        hint = did_you_mean(word, names)
        yield f"--{what}: {quote(word)} is not in the list of known {what}{hint}"
