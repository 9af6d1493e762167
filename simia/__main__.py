"""`python -P -m simia` is the `simia` command. Without -P, Python imports from the current folder first."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # `typing` takes longer to import than all modules that are imported before `main`
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

BEFORE_COMMAND = b"simia: stopped before the command began\n"


def main() -> None:
    """Run the command. Ctrl-C while modules are still imported ends it with one line, too."""
    with end_on_interrupt():
        from simia import cli

        app = cli.build_app(*sys.argv[1:2])
    cli.main(app)


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """Let SIGINT end the process at once, with one line and status 130, unless the process ignores it.

    A `KeyboardInterrupt` would be lost in a callback of the import system. Within `exec`, which dataclasses use, it would make
    Python end by the signal although it was caught.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, end_process)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_process(*_: object) -> NoReturn:
    """Write one line and end the process, without the clean-up of modules that are half imported."""
    os.write(2, BEFORE_COMMAND)
    os._exit(130)


if __name__ == "__main__":
    main()
