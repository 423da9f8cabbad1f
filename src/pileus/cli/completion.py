"""`pileus completion`: prints a script that completes commands, flags and values in a shell.

The script is generated from the declarations of commands and flags and from the installed
providers. It starts no process, except that it asks kubectl for names of objects.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from pileus.cli.arguments import Argument, Help, Usage, UsageError, answered, parse
from pileus.cli.declared import SHELLS, Declared, declared, lab_commands
from pileus.cli.object_names import RESOURCES, SYNONYMS, WORDS
from pileus.cli.terminal import Terminal

USAGE = Usage(
    "Print a script that completes commands and flags in a shell.",
    (Argument(name="shell", text="The shell.", choices=SHELLS),),
    closing=(
        "\nExamples:\n\n"
        "  source <(pileus completion bash)\n"
        "  pileus completion bash > /etc/bash_completion.d/pileus\n"
        '  pileus completion zsh > "${fpath[1]}/_pileus"\n'
        "  pileus completion fish > ~/.config/fish/completions/pileus.fish\n"
    ),
)
FILES = re.compile(r"(^|-)(file|config|kubeconfig|ca)$|-file$")
"""Names of flags whose values are files."""
KIND_WORDS = {
    kind: tuple(word for word, each in SYNONYMS.items() if each == kind) for kind in RESOURCES
}
"""All words that stand for a kind."""


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        given = parse(program, USAGE, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    terminal.out.write(script(given.text("shell"), declared()))
    return 0


def candidates(
    words: Sequence[str],
    commands: Sequence[Declared],
    names: Callable[[str], Sequence[str]] = lambda _kind: (),
) -> Sequence[str]:
    """Returns what the last word may become, for `kubectl pileus`.

    `names` returns the names of all objects of a kind.
    """
    *before, last = words or [""]
    named = [word for word in before if not word.startswith("-")]
    if not named:
        found = _names(commands).split()
    else:
        command = next((each for each in commands if each.name == named[0]), None)
        if command is None:
            return ()
        if before[-1] == "-o":
            return [each for each in command.outputs if each.startswith(last)]
        flag, equals, _ = last.partition("=")
        if before[-1] in SYNONYMS and _names_objects(command) and not last.startswith("-"):
            found = names(SYNONYMS[before[-1]])
        elif equals:
            flags = {f"--{each.name}": each for each in command.flags}
            values = command.values_of(flags[flag]) if flag in flags else ()
            found = [f"{flag}={value}" for value in values]
        else:
            found = _flag_words(command).split() if last.startswith("-") else [*command.words]
    return [each for each in found if each.startswith(last)]


def kubectl_complete() -> int:
    """The program `kubectl_complete-pileus`, which kubectl asks for completions."""
    for each in candidates(sys.argv[1:], declared(), object_names):
        sys.stdout.write(f"{each}\n")
    sys.stdout.write(":4\n")  # no file names
    return 0


def object_names(kind: str) -> Sequence[str]:
    """Returns the names of all objects of a kind; none if kubectl is missing or fails."""
    try:
        done = subprocess.run(  # noqa: S603 -- kinds are our own words
            ["/bin/sh", "-c", _listing(kind)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return done.stdout.split()


def script(shell: str, commands: Sequence[Declared]) -> str:
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return "".join(f"{line}\n" for line in made(commands))


def _names(commands: Sequence[Declared]) -> str:
    return " ".join((*(each.name for each in commands), *lab_commands(), "help"))


def _flag_words(command: Declared) -> str:
    """The flags of a command; one that needs a value ends with an equals sign."""
    return " ".join(
        f"--{flag.name}" if flag.kind.bare is not None else f"--{flag.name}="
        for flag in command.flags
    )


def _values(commands: Sequence[Declared]) -> Iterator[tuple[str, str, str]]:
    """Yields command, flag and values of the flags whose values are a few words."""
    for command in commands:
        for flag in command.flags:
            if values := command.values_of(flag):
                yield command.name, flag.name, " ".join(values)


BASH = """\
# bash completion of pileus and kubectl-pileus
_pileus() {
  local cur prev asked command="" word words="" flags="" values="" part
  cur="${COMP_LINE:0:$COMP_POINT}"; cur="${cur##* }"; COMPREPLY=()
  prev="${COMP_LINE:0:$((COMP_POINT - ${#cur}))}"; prev="${prev% }"; prev="${prev##* }"
  asked="$cur"; [ "$prev" = -o ] && asked="--output=$cur"
  for word in ${COMP_LINE:0:$((COMP_POINT - ${#cur}))}; do
    case "$word" in
      pileus|*/pileus|kubectl-pileus|*/kubectl-pileus|-*) ;;
      *) command="$word"; break ;;
    esac
  done
  case "$command" in
    "") words="@NAMES@" ;;
@COMMANDS@
  esac
  case "$command $asked" in
@VALUES@
  esac
  if [ "$prev" = -o ]; then
    COMPREPLY=($(compgen -W "$values" -- "$cur")); return
  fi
  case "$command $prev" in
@OBJECTS@
  esac
  case "$cur" in
    --*=*)
      part="${cur#*=}"
      if [ -n "$values" ]; then
        COMPREPLY=($(compgen -W "$values" -- "$part"))
      else
        COMPREPLY=($(compgen -f -- "$part"))
      fi
      case "$COMP_WORDBREAKS" in
        *=*) ;;
        *) COMPREPLY=("${COMPREPLY[@]/#/${cur%%=*}=}") ;;
      esac
      return ;;
    -*) words="$flags --help" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  if [ ${#COMPREPLY[@]} -eq 1 ]; then
    case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac
  fi
}
complete -F _pileus pileus kubectl-pileus"""


def _bash(commands: Sequence[Declared]) -> Iterable[str]:
    rows = [
        f'    {each.name}) words="{" ".join(each.words)}" flags="{_flag_words(each)}" ;;'
        for each in commands
    ]
    values = [
        f'    "{command} --{flag}="*) values="{words}" ;;'
        for command, flag, words in _values(commands)
    ]
    objects = [
        f'    {"|".join(_pairs(words, commands))})\n      words="$({_listing(kind)})" ;;'
        for kind, words in KIND_WORDS.items()
    ]
    text = BASH.replace("@NAMES@", _names(commands)).replace("@COMMANDS@", "\n".join(rows))
    text = text.replace("@OBJECTS@", "\n".join(objects))
    return text.replace("@VALUES@", "\n".join(values)).splitlines()


def _names_objects(command: Declared) -> bool:
    return command.words == tuple(WORDS)


def _pairs(words: Sequence[str], commands: Sequence[Declared]) -> Iterator[str]:
    named = (each for each in commands if _names_objects(each))
    return (f'"{each.name} {word}"' for each in named for word in words)


def _listing(kind: str) -> str:
    """Returns the command that prints the names of all objects of a kind, in words."""
    resource = RESOURCES[kind]
    scope, prefix = ("", "")
    if resource.namespaced:
        scope, prefix = (" --all-namespaces", "{.metadata.namespace}/")
    path = f"{{range .items[*]}}{prefix}{{.metadata.name}} {{end}}"
    return f"kubectl get {resource.plural}{scope} --output=jsonpath='{path}' 2>/dev/null"


def _zsh(commands: Sequence[Declared]) -> Iterable[str]:
    yield "#compdef pileus kubectl-pileus"
    yield "_pileus_names() {"
    yield "  local -a given; local -a found"
    yield "  given=(${words[2,CURRENT-1]:#-*})"
    yield '  case "$given[1]" in'
    for kind, words in KIND_WORDS.items():
        yield f"    {'|'.join(words)}) found=(${{=$({_listing(kind)})}}) ;;"
    yield "  esac"
    yield "  compadd -a found"
    yield "}"
    yield "_pileus() {"
    yield "  local -a commands flags"
    yield "  commands=("
    for each in commands:
        yield f"    {_zsh_quoted(f'{each.name}:{each.summary}')}"
    yield from (f"    {name}" for name in (*lab_commands(), "help"))
    yield "  )"
    yield "  if (( CURRENT == 2 )); then _describe command commands; return; fi"
    yield '  case "$words[2]" in'
    for each in commands:
        yield f"    {each.name}) flags=("
        yield from (f"      {_zsh_quoted(spec)}" for spec in _zsh_specs(each))
        yield "    ) ;;"
    yield "  esac"
    yield "  shift words; (( CURRENT-- ))"
    yield "  _arguments -S $flags"
    yield "}"
    yield '[ "$funcstack[1]" = _pileus ] && _pileus "$@" || compdef _pileus pileus kubectl-pileus'


def _zsh_specs(command: Declared) -> Iterator[str]:
    for flag in command.flags:
        text = re.sub(r"([\[\]:])", r"\\\1", flag.help)
        if flag.kind.bare is not None:
            yield f"--{flag.name}[{text}]"
            continue
        values = command.values_of(flag)
        action = f"({' '.join(values)})" if values else "_files" if FILES.search(flag.name) else ""
        rest = f"[{text}]:{flag.kind.name.replace(':', '') or 'value'}:{action}"
        yield f"--{flag.name}={rest}"
        if flag.short:
            yield f"-{flag.short}+{rest}"
    if command.words:
        yield f"1:word:({' '.join(command.words)})"
    if _names_objects(command):
        yield "2:name:_pileus_names"


def _fish(commands: Sequence[Declared]) -> Iterable[str]:
    yield "# fish completion of pileus and kubectl-pileus"
    names = _names(commands)
    for program in ("pileus", "kubectl-pileus"):
        none = f"not __fish_seen_subcommand_from {names}"
        yield f"complete -c {program} -f"
        head = f"complete -c {program} -n {_quoted(none)}"
        for each in commands:
            yield f"{head} -a {each.name} -d {_quoted(each.summary)}"
        yield f"{head} -a {_quoted(' '.join(lab_commands()))}"
        for each in commands:
            yield from _fish_command(program, each)


def _fish_command(program: str, command: Declared) -> Iterator[str]:
    seen = f"__fish_seen_subcommand_from {command.name}"
    head = f"complete -c {program} -n '{seen}'"
    words = " ".join(command.words)
    if _names_objects(command):
        none = f"{seen}; and not __fish_seen_subcommand_from {' '.join(SYNONYMS)}"
        yield f"complete -c {program} -n {_quoted(none)} -a {_quoted(words)}"
        for word, kind in SYNONYMS.items():
            last = f"{seen}; and test (commandline -opc)[-1] = {word}"
            names = f"({_listing(kind)} | string split -n ' ')"
            yield f"complete -c {program} -n {_quoted(last)} -a {_quoted(names)}"
    elif command.words:
        yield f"{head} -a {_quoted(words)}"
    for flag in command.flags:
        values = command.values_of(flag)
        kind = "" if flag.kind.bare is not None else " -x" if values else " -r -F"
        choices = f" -a {_quoted(' '.join(values))}" if values else ""
        short = f" -s {flag.short}" if flag.short else ""
        yield f"{head} -l {flag.name}{short}{kind}{choices} -d {_quoted(flag.help)}"


def _zsh_quoted(text: str) -> str:
    """Returns the text in single quotes, in which zsh knows no escapes."""
    return "'" + text.replace("'", "'\\''") + "'"


def _quoted(text: str) -> str:
    """Returns the text in single quotes, for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
