"""The entry point of the command. It imports only a few small modules before it sets the handling of Ctrl-C for the
command."""

from __future__ import annotations

import os
import sys

from barnabas.cli.signals import end_at_once_on_interrupt, interrupt_as_usual


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    :param arguments: the command line without the program name; None: the command line of this process, which then
    exits with the code.
    """
    if arguments is not None:
        from barnabas.cli.commands import run

        return run(arguments)
    end_at_once_on_interrupt()
    if sys.argv[1:] == ["--version"] and not os.environ.get("BARNABAS_CODEC") and _has_shown_version():
        return 0
    from barnabas.cli.commands import run
    from barnabas.cli.standard_output import name_standard_output

    name_standard_output()
    interrupt_as_usual()
    try:
        return run()
    finally:
        end_at_once_on_interrupt()  # all resources are closed, so Ctrl-C may now end the interpreter immediately


def _has_shown_version() -> bool:
    """Print the version without parsing the command line; return False if that fails."""
    from barnabas.cli.version import version_line

    line = f"{version_line()}\n".encode()
    try:
        return os.write(1, line) == len(line)
    except OSError:  # the regular code path fails in the same way and reports the reason
        return False


if __name__ == "__main__":
    sys.exit(main())
