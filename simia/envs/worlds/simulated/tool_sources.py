"""The source of a pack's tools for a prompt: the called tool, then the definitions that it uses, if they are in the pack's folder.

The code is parsed and never run. A tool is the method with its name in the pack's class or a base class, or else a function with that name.
The methods, functions, classes and constants that it uses are found by name, breadth first: the nearest come first, and the limit drops
the farthest.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from simia.pack import Pack

MOST_FILES, MOST_BYTES = 40, 1 << 20
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(slots=True)
class PackModule:
    """A parsed file of the pack."""

    text: str
    defined: dict[str, Definition] = field(default_factory=dict)
    """Name → definition at the top level."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → the module that it is imported from, and its name there; an empty name means the module itself."""


class ToolSources:
    """The sources of one pack's tools."""

    def __init__(self, pack: Pack, limit: int) -> None:
        """`limit`: characters of the source of one call."""
        self._limit = limit
        self._modules: dict[str, PackModule] = {}
        self._found: dict[str, tuple[str, frozenset[str]]] = {}
        self._object, self._main = "", ""
        how = pack.executable
        if how is not None and pack.root is not None:
            self._object, self._main = how.object, Path(how.code).stem
            hidden = {*how.hidden, *([pack.file.checks] if pack.file and pack.file.checks else [])}
            self._root = pack.root.resolve()
            folder = (pack.root / how.code).parent
            self._parse(folder, self._main, {(pack.root / name).resolve() for name in hidden})

    def _parse(self, folder: Path, name: str, hidden: set[Path]) -> None:
        """Parse a module of the pack and those that it imports; files that are missing, unreadable or outside of the pack are left out."""
        path = (folder / f"{name.replace('.', '/')}.py").resolve()
        if name in self._modules or len(self._modules) >= MOST_FILES or not path.is_file():
            return
        if any(each in (path, *path.parents) for each in hidden) or path.stat().st_size > MOST_BYTES:
            return
        if not path.is_relative_to(self._root):  # a link: an untrusted pack must not put host files into prompts
            return
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        module = self._modules[name] = PackModule(text)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                module.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                module.defined |= {
                    each.id: node for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
                }
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                module.imported |= {each.asname or each.name: (node.module, each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                module.imported |= {each.asname or each.name: (each.name, "") for each in node.names}
        for other, _ in list(module.imported.values()):
            self._parse(folder, other, hidden)

    def find_source(self, tool: str) -> str:
        """Return the source of a tool and of the definitions that it uses; empty if it is not in the pack's folder."""
        return self._collect(tool)[0]

    def find_attributes(self, tool: str) -> frozenset[str]:
        """The names of attributes in the tool's source, those of the state's tables among them."""
        return self._collect(tool)[1]

    def _collect(self, tool: str) -> tuple[str, frozenset[str]]:
        if tool in self._found:
            return self._found[tool]
        texts, left_out, attributes = list[str](), list[str](), set[str]()
        room = self._limit
        for module, name, node in self._walk(tool):
            text = cut_source(self._modules[module].text, node)
            if texts and len(text) > room:
                left_out.append(name)
                continue
            room -= len(text)
            texts.append(text)
            attributes |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        if left_out:
            texts.append(f"# left out here: {', '.join(dict.fromkeys(left_out))}")
        found = self._found[tool] = "\n\n".join(texts), frozenset(attributes)
        return found

    def _walk(self, tool: str) -> Iterator[tuple[str, str, ast.AST]]:
        """Yield the tool's definition, then those that it uses, breadth first."""
        start = self._find_method(tool) or next(
            ((name, module.defined[tool]) for name, module in self._modules.items() if tool in module.defined), None
        )
        queue: list[tuple[str, str, ast.AST]] = [(start[0], tool, start[1])] if start else []
        seen = {(start[0], tool)} if start else set()
        while queue:
            module, name, node = queue.pop(0)
            yield module, name, node
            for each in ast.walk(node):
                found: tuple[str, ast.AST] | None = None
                if (
                    isinstance(each, ast.Attribute)
                    and isinstance(each.value, ast.Name)
                    and each.value.id in ("self", "cls")
                ):
                    used, found = each.attr, self._find_method(each.attr)
                elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                    used, found = each.attr, self._find_in_module(module, each.value.id, each.attr)
                elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                    used, found = each.id, self._find_name(module, each.id)
                if found is not None and (found[0], used) not in seen and used != self._object:
                    seen.add((found[0], used))
                    queue.append((found[0], used, found[1]))

    def _find_name(self, module: str, name: str) -> tuple[str, ast.AST] | None:
        """Find the definition of a module's name, there or in the module that it is imported from."""
        held = self._modules.get(module)
        if held is None:
            return None
        if name in held.defined:
            return module, held.defined[name]
        source, original = held.imported.get(name, ("", ""))
        return self._find_name(source, original) if original and source != module else None

    def _find_in_module(self, module: str, alias: str, name: str) -> tuple[str, ast.AST] | None:
        """The definition of `alias.name`, where the alias is an imported module."""
        source, original = self._modules[module].imported.get(alias, ("", ""))
        return self._find_name(source, name) if source and not original else None

    def _find_method(self, name: str) -> tuple[str, ast.AST] | None:
        """Find a method or attribute of the pack's class or of a base class."""
        places, seen = [(self._main, self._object)], set[tuple[str, str]]()
        while places:
            place = places.pop(0)
            found = self._find_name(*place) if place not in seen else None
            seen.add(place)
            if found is None or not isinstance(found[1], ast.ClassDef):
                continue
            for node in found[1].body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                    return found[0], node
                if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                    return found[0], node
            places += [(found[0], base.id) for base in found[1].bases if isinstance(base, ast.Name)]
        return None


def cut_source(text: str, node: ast.AST) -> str:
    """The source of a definition with its decorators, at the left margin."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno])).rstrip()  # type: ignore[attr-defined]
