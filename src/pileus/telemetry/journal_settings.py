"""Settings of the journal of decisions (`--history-…`) and of traces (`--otlp-endpoint`)."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from pileus.dataclass import dataclass
from pileus.settings.checks import at_least_one, not_negative
from pileus.settings.config import Config
from pileus.settings.declare import setting
from pileus.settings.go_quote import quote
from pileus.settings.kinds import INT, QUANTITY, STRING
from pileus.telemetry.journal import LONGEST_ENTRY, Bounds

_SECTION = "Pileus: history"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """How many decisions are kept, and where they are sent besides."""

    entries: int = setting(
        "history-entries",
        INT,
        Bounds().entries,
        "Decisions that are kept in memory for pileus history; 0: none.",
        section=_SECTION,
        check=not_negative,
    )
    per_object: int = setting(
        "history-entries-per-object",
        INT,
        Bounds().per_object,
        "Decisions that are kept in memory for each object.",
        section=_SECTION,
        check=at_least_one,
    )
    memory: int = setting(
        "history-memory",
        QUANTITY,
        Bounds().total_bytes,
        "Size of all decisions in memory, in bytes of JSON.",
        section=_SECTION,
    )
    file: str = setting(
        "history-file",
        STRING,
        "",
        "File to which each decision is appended as a line of JSON; empty: none.",
        section=_SECTION,
    )
    file_size: int = setting(
        "history-file-size",
        QUANTITY,
        10 * 1024 * 1024,
        "Size of the file at which it is renamed to FILE.1 and a new one is begun.",
        section=_SECTION,
    )

    otlp_endpoint: str = setting(
        "otlp-endpoint",
        STRING,
        "",
        "URL of an OpenTelemetry collector for traces of passes (OTLP over HTTP); empty: none.",
        details="Needs the extra pileus[otlp]. Variables OTEL_EXPORTER_OTLP_… apply besides.",
        section=_SECTION,
    )

    @property
    def bounds(self) -> Bounds:
        return Bounds(per_object=self.per_object, entries=self.entries, total_bytes=self.memory)

    def problems(self, config: Config) -> Iterator[str]:  # noqa: ARG002 -- the protocol's
        for flag, size in (("history-memory", self.memory), ("history-file-size", self.file_size)):
            if size < LONGEST_ENTRY:
                yield f"--{flag} must be at least {LONGEST_ENTRY} bytes, but got {size}"
        if self.otlp_endpoint and not _is_url(self.otlp_endpoint):
            yield (
                "--otlp-endpoint must be a URL such as http://collector:4318, but got "
                f"{quote(self.otlp_endpoint)}"
            )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)
