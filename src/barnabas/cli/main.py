"""The entry of the command. It imports nothing that takes time before Ctrl-C is an ordinary way to end."""

from __future__ import annotations

import os
import sys

from barnabas.cli.signals import end_at_once_on_interrupt, interrupt_as_usual


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code.

    :param arguments: the command line without the program's name; None: that of the process, which is ended then.
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
        end_at_once_on_interrupt()  # what was open is closed; what the interpreter still does is nobody's concern


def _has_shown_version() -> bool:
    """Show the version without what it takes to understand a command line; False where that fails."""
    from barnabas.cli.version import version_line

    line = f"{version_line()}\n".encode()
    try:
        return os.write(1, line) == len(line)
    except OSError:  # the ordinary way fails likewise, and says why
        return False


if __name__ == "__main__":
    sys.exit(main())
