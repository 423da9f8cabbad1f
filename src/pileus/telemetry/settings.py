"""Settings of logs (`-v`, `--vmodule`, `--logging-format`, `--log-…`)."""

from collections.abc import Iterator

from pileus.dataclass import dataclass
from pileus.settings.config import Config
from pileus.settings.declare import setting, switch
from pileus.settings.feature_gates import LOGGING_ALPHA, LOGGING_BETA, Gates
from pileus.settings.flags import Flag
from pileus.settings.go_quote import quote
from pileus.settings.kinds import DURATION, LEVEL, QUANTITY, STRING, Kind, joined
from pileus.suggest import did_you_mean

FORMATS = ("text", "json")
_SPLIT = "[Alpha] In {} format, write errors to stderr and the rest to stdout."
_BUFFER = "[Alpha] In {} format with split streams, size of the buffer for info messages; 0: none."
_GATE = "Needs the feature gate LoggingAlphaOptions."
_SECTION = "Global"


@dataclass(frozen=True, slots=True)
class ModuleLevel:
    """Log verbosity for the source files that match a pattern."""

    pattern: str
    level: int


def _parse_modules(text: str) -> tuple[ModuleLevel, ...]:
    return tuple(_parse_module(part) for part in text.split(",") if part)


def _parse_module(part: str) -> ModuleLevel:
    pattern, _, level = part.partition("=")
    if not pattern or not level or "=" in level:
        raise ValueError(f"{quote(part)} does not have the pattern=N format")
    try:
        return ModuleLevel(pattern, LEVEL.parse(level))
    except ValueError as error:
        raise ValueError(f"parsing verbosity in {quote(part)}: {error}") from None


MODULES: Kind[tuple[ModuleLevel, ...]] = Kind(
    name="pattern=N,...",
    parse=_parse_modules,
    render=lambda value: ",".join(f"{one.pattern}={one.level}" for one in value),
    join=joined,
)


def _flush(flag: Flag[float], value: float) -> str | None:
    if value > 0:
        return None
    shown = quote(flag.kind.render(value))
    return f"--{flag.name}: flushFrequency: Invalid value: {shown}: Must be greater than zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How to log."""

    verbosity: int = setting(
        "v", LEVEL, 0, "Log verbosity: 0 least, 10 most.", short="v", section=_SECTION
    )
    modules: tuple[ModuleLevel, ...] = setting(
        "vmodule",
        MODULES,
        (),
        "Log verbosity by source file: comma-separated PATTERN=N; text format only.",
        section=_SECTION,
    )
    format: str = setting(
        "logging-format", STRING, "text", "Log format: text or json.", section=_SECTION
    )
    flush_frequency: float = setting(
        "log-flush-frequency",
        DURATION,
        5.0,
        "Maximum time until a log line is written.",
        section=_SECTION,
        check=_flush,
    )
    text_split_stream: bool = switch(
        "log-text-split-stream", _SPLIT.format("text"), details=_GATE, section=_SECTION
    )
    json_split_stream: bool = switch(
        "log-json-split-stream", _SPLIT.format("JSON"), details=_GATE, section=_SECTION
    )
    text_info_buffer_size: int = setting(
        "log-text-info-buffer-size",
        QUANTITY,
        0,
        _BUFFER.format("text"),
        details=_GATE,
        section=_SECTION,
    )
    json_info_buffer_size: int = setting(
        "log-json-info-buffer-size",
        QUANTITY,
        0,
        _BUFFER.format("JSON"),
        details=_GATE,
        section=_SECTION,
    )

    @property
    def split_streams(self) -> bool:
        """Whether errors and the rest go to different streams in the chosen format."""
        return self.text_split_stream if self.format == "text" else self.json_split_stream

    @property
    def buffer_size(self) -> int:
        """Bytes of the buffer for info messages in the chosen format."""
        return self.text_info_buffer_size if self.format == "text" else self.json_info_buffer_size

    def problems(self, config: Config) -> Iterator[str]:
        gates = config[Gates]
        if self.format not in FORMATS:
            yield (
                f"--logging-format: format: Invalid value: {quote(self.format)}: "
                f"Unsupported log format; use text or json{did_you_mean(self.format, FORMATS)}"
            )
        elif self.format == "json" and not gates.enabled(LOGGING_BETA):
            yield (
                "--logging-format: format: Forbidden: Log format json is disabled, "
                "see LoggingBetaOptions feature"
            )
        if self.modules and self.format != "text":
            yield "--vmodule: Forbidden: Only supported for text log format"
        if not gates.enabled(LOGGING_ALPHA):
            yield from self._gated()

    def _gated(self) -> Iterator[str]:
        used = {
            ("log-text-split-stream", "text.splitStream"): self.text_split_stream,
            ("log-text-info-buffer-size", "text.infoBufferSize"): self.text_info_buffer_size != 0,
            ("log-json-split-stream", "json.splitStream"): self.json_split_stream,
            ("log-json-info-buffer-size", "json.infoBufferSize"): self.json_info_buffer_size != 0,
        }
        for (flag, name), is_used in used.items():
            if is_used:
                yield (
                    f"--{flag}: options.{name}: Forbidden: Feature {LOGGING_ALPHA.name} is disabled"
                )
