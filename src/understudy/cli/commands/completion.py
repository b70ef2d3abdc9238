"""The command that prints a shell's completion script: understudy completion bash|zsh|fish.

The script asks the same command, with the line that was typed so far, for what may come next.
"""

from __future__ import annotations

import enum
import importlib
import shlex
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from understudy.cli.commands import group

NAME = "understudy"

SCRIPTS = {
    "bash": """\
_understudy() {
    mapfile -t COMPREPLY < <("$1" completion bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _understudy understudy
""",
    "zsh": """\
#compdef understudy
_understudy() {
    local -a told
    told=("${(@f)$(understudy completion zsh --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${told[*]}" ]]; then _describe understudy told; else _files; fi
}
compdef _understudy understudy
""",
    "fish": """\
function __understudy_complete
    set -l told (understudy completion fish --line (commandline -cp) 2>/dev/null)
    if test (count $told) -gt 0
        printf '%s\\n' $told
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c understudy -f -a '(__understudy_complete)'
""",
}
"""Where nothing is offered, each shell offers files."""


class Shell(enum.Enum):
    """A shell with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("completion")(completion)


def completion(
    shell: Shell,
    line: Annotated[
        str | None, typer.Option(hidden=True, help="The line that was typed so far.")
    ] = None,
) -> None:
    """Print the script that completes commands, options and ids in your shell.

    bash and zsh: put the line below into ~/.bashrc, or into ~/.zshrc after compinit.
    """
    if line is None:
        typer.echo(SCRIPTS[shell.value], nl=False)
        return
    for text, meaning in offers(line):
        typer.echo(_formatted(shell, text, meaning))


def offers(line: str) -> Iterable[tuple[str, str]]:
    """Return what may come next in a line, each with its meaning; nothing in an open quotation."""
    try:
        words = shlex.split(line)
    except ValueError:
        return []
    incomplete = "" if not words or line[-1].isspace() else words.pop()
    commands = typer.main.get_command(group.app)
    found = _completer(commands)(commands, {}, NAME, "").get_completions(words[1:], incomplete)
    return [(one.value, one.help or "") for one in found if one.type == "plain"]


def _completer(commands: Any) -> Any:
    """Return what completes: of click, or of the copy of click that typer may bring.

    Its methods for the scripts of click are unused.
    """
    base = next(one for one in type(commands).__mro__ if one.__name__ == "Command")
    package = base.__module__.rpartition(".")[0]
    completer = importlib.import_module(f"{package}.shell_completion").ShellComplete
    unused = ("format_completion", "get_completion_args", "source_vars")
    return type("Completer", (completer,), dict.fromkeys(unused))


def _formatted(shell: Shell, text: str, meaning: str) -> str:
    meaning = " ".join(meaning.split())
    match shell:
        case Shell.BASH:
            return shlex.quote(text)
        case Shell.ZSH:
            escaped = text.replace(":", "\\:")
            return f"{escaped}:{meaning}" if meaning else escaped
        case Shell.FISH:
            return f"{text}\t{meaning}" if meaning else text
