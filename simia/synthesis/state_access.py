"""Find the state of an environment in the source of its tools."""

from __future__ import annotations

import ast
from collections.abc import Collection


def is_state(node: ast.AST, aliases: Collection[str] = ()) -> bool:
    """Whether an expression is `self.state`, or a variable that holds it. `aliases`: the names of these variables."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr="state"):
            return True
        case ast.Name(id=name):
            return name in aliases
    return False
