"""Assemble the methods of an environment into one `tools.py` that a person can read (EnvScaler §2, ScaleEnv §3.2)."""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Collection, Iterable

from simia.synthesis.building.state_model import KIT_NAMES, name_row_classes
from simia.synthesis.design import EnvironmentDesign

WIDTH = 118
DATES = ("date", "datetime", "time", "timedelta")
MODULES = ("math", "re")
TYPES = ("Any", "Literal")
MODELS = ("BaseModel", "ConfigDict")
KIT = ("ToolError", "Tools", "read", "write")
AVAILABLE = frozenset({*DATES, *MODULES, *TYPES, *KIT})
"""Names that a method may use without defining them; only those that are used are imported."""


def assemble_code(design: EnvironmentDesign, state_model: str, methods: Iterable[str]) -> str:
    """Return the source of `tools.py`: the state model, and one class with the methods in the given order."""
    name, methods = name_tools_class(design), [method.strip() for method in methods]
    body = [
        state_model.strip(),
        "",
        "",
        f"class {name}(Tools[State]):",
        '    """The tools of the agent."""',
        "",
        "    State = State",
    ]
    for method in methods:
        body += ["", textwrap.indent(method, "    ")]
    code = "\n".join(body) + "\n"
    used = frozenset({"Tools"}).union(*map(list_used_names, [state_model.strip(), *methods]))
    return f'"""{write_module_text(design)}"""\n\n{write_imports(used)}\n\n\n{code}'


def write_module_text(design: EnvironmentDesign) -> str:
    """The docstring of the module: title and description, in lines of bounded width."""
    title, text = (
        " ".join(part.replace("\\", "/").replace('"', "'").split()) for part in (design.title, design.description)
    )
    title = title.rstrip(".") + "."
    return title + ("\n\n" + textwrap.fill(text, WIDTH) + "\n" if text else "")


@functools.lru_cache(maxsize=4096)
def list_used_names(code: str) -> frozenset[str]:
    """Return the names that the code uses. Raises `SyntaxError`. Cached, since the code is assembled again for each repair of each tool."""
    return frozenset(node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))


def write_imports(used: Collection[str]) -> str:
    """The import lines for these names."""
    lines = [f"import {name}" for name in MODULES if name in used]
    for module, names in (("datetime", DATES), ("typing", TYPES)):
        if wanted := [name for name in names if name in used]:
            lines.append(f"from {module} import {', '.join(wanted)}")
    models = [name for name in MODELS if name in used]
    kit = [name for name in KIT if name in used]
    return "\n".join(
        [
            "from __future__ import annotations",
            *(["", *lines] if lines else []),
            "",
            f"from pydantic import {', '.join(models)}",
            "",
            f"from simia.kit import {', '.join(kit)}",
        ]
    )


def name_tools_class(design: EnvironmentDesign) -> str:
    """The name of the class of tools: the environment's in capitals."""
    name = "".join(word.capitalize() for word in design.name.split("_"))
    taken = {*KIT_NAMES, *AVAILABLE, *name_row_classes(design.state).values()}
    while name in taken:
        name += "Tools"
    return name
