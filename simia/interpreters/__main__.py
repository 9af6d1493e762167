"""`python -m simia.interpreters NAME`: the interpreter of that environment, built when it is not there yet."""

from __future__ import annotations

import sys

from simia.errors import UserError
from simia.interpreters import RECIPES, ensure
from simia.terminal import say, say_error


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        say_error(f"usage: python -m simia.interpreters {{{'|'.join(RECIPES)}}}")
        return 2
    try:
        say(ensure(arguments[0], say=say_error))
    except UserError as error:
        say_error(f"simia: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
