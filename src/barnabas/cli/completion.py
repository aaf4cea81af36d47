"""`barnabas completion`: prints a shell script that completes commands, options, topics and groups."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "barnabas"
COMPLETE_VARIABLE = "_BARNABAS_COMPLETE"
"""The environment variable that the completion script sets to request completions from click. Click derives its name
from the program name."""


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
    assert of_shell is not None, "click supports all shells of the argument's choices"
    click.echo(of_shell(context.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE).source())
