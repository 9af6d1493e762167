"""A small folder in the form of tau-bench's repository, all of it ours."""

import json
from pathlib import Path

TOOL = """
class {kind}(Tool):
    @staticmethod
    def invoke(data, {parameters}):
        {body}

    @staticmethod
    def get_info():
        return {{
            "type": "function",
            "function": {{
                "name": "{name}",
                "description": "{words} " "It is quick.",
                "parameters": {{"type": "object", "properties": {{"book": {{"type": "string"}}}}, "required": ["book"]}},
            }},
        }}
"""
LEND = """if book not in data["books"]:
            return "Error: no such book"
        data["books"][book]["out"] += 1
        if data["books"][book]["out"] > 2:
            raise ValueError("all copies are out")
        return json.dumps(data["books"][book])"""
TOOLS = {
    "lend_book": ("LendBook", "book", LEND, "Lends a book."),
    "find_book": ("FindBook", "book", 'return json.dumps(data["books"].get(book))', "Finds a book."),
    "call_librarian": ("CallLibrarian", "book", 'return "Somebody comes."', "Calls the librarian."),
}
TASKS = """from tau_bench.types import Action, Task

TASKS = [
    Task(annotator="0", user_id="ann", instruction="You are Ann and want to borrow Emma.",
         actions=[Action(name="find_book", kwargs={"book": "emma"}), Action(name="lend_book", kwargs={"book": "emma"})], outputs=[]),
    Task(annotator="0", user_id="ben", instruction="You are Ben. How many copies of Emma are out? You want the librarian then.",
         actions=[Action(name="find_book", kwargs={"book": "emma"}), Action(name="call_librarian", kwargs={"book": "emma"})], outputs=["1200"]),
    Task(annotator="0", user_id="cat", instruction="You are Cat. You want nothing.", actions=[], outputs=[]),
]
"""
USER = '''class LLMUserSimulationEnv:
    def build_system_prompt(self, instruction):
        shown = "" if instruction is None else instruction
        return f"""You are a visitor of a library.{shown}
Say ###STOP### at the end."""
'''


def write_folder(folder: Path) -> Path:
    root = folder / "tau_bench"
    domain = root / "envs" / "retail"
    for part in ("tools", "data"):
        (domain / part).mkdir(parents=True)
    for name, (kind, parameters, body, words) in TOOLS.items():
        source = TOOL.format(kind=kind, parameters=parameters, body=body, name=name, words=words)
        text = f"import json\n\nfrom tau_bench.envs.tool import Tool\n\n{source}"
        (domain / "tools" / f"{name}.py").write_text(text, encoding="utf-8")
    imports = "".join(f"from .{name} import {kind}\n" for name, (kind, *_) in TOOLS.items())
    kinds = ", ".join(kind for kind, *_ in TOOLS.values())
    (domain / "tools" / "__init__.py").write_text(f"{imports}\nALL_TOOLS = [{kinds}]\n", encoding="utf-8")
    (domain / "data" / "books.json").write_text(
        json.dumps({"emma": {"out": 1}, "ivanhoe": {"out": 0}}), encoding="utf-8"
    )
    load = 'return {"books": json.load(open(os.path.join(os.path.dirname(__file__), "books.json")))}'
    (domain / "data" / "__init__.py").write_text(
        f"import json\nimport os\n\n\ndef load_data():\n    {load}\n", encoding="utf-8"
    )
    ending = 'class Env:\n    def __init__(self):\n        self.terminate_tools = ["call_librarian"]\n'
    (domain / "env.py").write_text(ending, encoding="utf-8")
    (domain / "tasks_test.py").write_text(TASKS, encoding="utf-8")
    (domain / "wiki.md").write_text("Be kind.\n", encoding="utf-8")
    (root / "envs" / "tool.py").write_text("class Tool:\n    pass\n", encoding="utf-8")
    # Of these nothing may be run: they import what is not installed here.
    (root / "envs" / "__init__.py").write_text("import no_such_client\n", encoding="utf-8")
    (root / "envs" / "user.py").write_text(f"import no_such_client\n\n\n{USER}", encoding="utf-8")
    return folder
