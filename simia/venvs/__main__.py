"""`python -m simia.venvs NAME`: print the interpreter of that environment, which is built if it does not exist."""

from __future__ import annotations

import sys

from simia.errors import UserError
from simia.terminal import say, say_error
from simia.venvs import RECIPES, ensure_environment


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        say_error(f"usage: python -m simia.venvs {{{'|'.join(RECIPES)}}}")
        return 2
    try:
        say(ensure_environment(arguments[0], say=say_error))
    except UserError as error:
        say_error(f"simia: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
