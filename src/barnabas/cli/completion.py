"""`barnabas completion`: the script that makes a shell complete commands, options, topics and groups."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "barnabas"
COMPLETE_VARIABLE = "_BARNABAS_COMPLETE"
"""Set by the script when the shell asks for completions; click finds it by the name of the program."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    eval "$(barnabas completion bash)"           # in ~/.bashrc; needs bash 4.4 or later
    eval "$(barnabas completion zsh)"            # in ~/.zshrc
    barnabas completion fish > ~/.config/fish/completions/barnabas.fish
    """
    of_shell = get_completion_class(shell)
    assert of_shell is not None, "click completes for the shells that can be chosen"
    click.echo(of_shell(context.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE).source())
