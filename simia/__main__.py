"""`python -P -m simia` is the `simia` command. Without -P, Python imports from the current folder first."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. Ctrl-C while modules are still imported ends it with one line, too."""
    try:
        from simia.cli import main as run_command_line

        run_command_line()
    except KeyboardInterrupt:
        sys.stderr.write("simia: stopped before the command began\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
