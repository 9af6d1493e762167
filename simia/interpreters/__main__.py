"""`python -m simia.interpreters NAME`: the interpreter of that environment, built when it is not there yet."""

from __future__ import annotations

import sys

from simia.errors import UserError
from simia.interpreters import RECIPES, ensure


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: python -m simia.interpreters {{{'|'.join(RECIPES)}}}", file=sys.stderr)
        return 2
    try:
        print(ensure(arguments[0], say=lambda line: print(line, file=sys.stderr)))
    except UserError as error:
        print(f"simia: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
