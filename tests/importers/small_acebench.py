"""A folder in ACEBench's form with code, data and prompts of ours: a light that is switched, and seats that are booked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BASE = """
class BaseApi:
    def __init__(self):
        self.wifi = False
        self.logged_in = True

    def _load_scenario(self, scenario, long_context=False):
        self.wifi = scenario.get("wifi", False)

    def turn_on_wifi(self):
        self.wifi = True
        return {"status": True}
"""
MESSAGES = """
from model_inference.multi_turn.scenariosen.phone_platform.base_api import BaseApi


class MessageApi(BaseApi):
    def __init__(self):
        self.inbox = {1: {"message": "Hi"}}

    def send_message(self, message):
        if not self.wifi:
            return {"status": False}
        self.inbox[len(self.inbox) + 1] = {"message": message}
        return {"status": True}
"""
EMPTY = """
class {name}:
    def _load_scenario(self, scenario, long_context=False):
        pass
"""
TRAVEL = """
class Travel:
    def __init__(self):
        self.users = {"ada": {"cash": 10}}
        self.reservations = []

    def _load_scenario(self, scenario, long_context=False):
        pass

    def reserve(self, seats):
        self.users["ada"]["cash"] -= sum(seats)
        self.reservations.append({"seats": seats})
        return [1, 2]
"""
SAVED = {"BaseApi": ["wifi"], "MessageApi": ["inbox"], "Travel": ["users", "reservations"]}


def document(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "dict", "required": sorted(properties), "properties": properties}
    return {"name": name, "description": f"{name}.", "parameters": parameters}


PHONE = [
    document("turn_on_wifi", {}),
    document("send_message", {"message": {"type": "string", "description": "Text."}}),
    document("search_reminders", {"keyword": {"type": "string", "description": "No class has it."}}),
]
FLIGHTS = [document("reserve", {"seats": {"type": "list", "description": "Rows.", "items": {"type": "integer"}}})]
SENT = [
    {"BaseApi": {"wifi": True, "logged_in": True}},
    {"MessageApi": {"inbox": {"1": {"message": "Hi"}, "2": {"message": "It's late"}}}},
]
STONES = ["[turn_on_wifi()]", "[send_message(message='It's late')]"]


def make_task(name: str, classes: list[str], functions: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": name,
        "question": f"Do {name}.",
        "initial_config": {},
        "function": functions,
        "involved_classes": classes,
    }


TASKS = {
    "multi_step": [make_task("agent_multi_step_0", ["BaseApi", "MessageApi"], PHONE)],
    "multi_turn": [
        make_task("agent_multi_turn_0", ["BaseApi", "MessageApi"], PHONE),
        make_task("agent_multi_turn_1", ["Travel"], FLIGHTS),
    ],
}
TRUTHS: dict[str, list[dict[str, Any]]] = {
    "multi_step": [{"id": "agent_multi_step_0", "ground_truth": SENT, "mile_stone": [STONES, ["[turn_on_wifi()]"]]}],
    "multi_turn": [
        {"id": "agent_multi_turn_0", "ground_truth": SENT, "mile_stone": STONES},
        {
            "id": "agent_multi_turn_1",
            "ground_truth": {"Travel": {"users": {"ada": {"cash": 7}}, "reservations": [{"seats": [1, 2]}]}},
            "mile_stone": ["[reserve(seats=[1, 2])]"],
        },
    ],
}
RULES = "You are a user.\n\nInstruction: {instruction}\n\nRules:\n- One line.\n"


def write_folder(folder: Path) -> Path:
    """Write the folder and return it."""
    scenarios = folder / "model_inference" / "multi_turn" / "scenariosen"
    files = {
        folder / "LICENSE.md": "Ours.",
        scenarios / "phone_platform" / "base_api.py": BASE,
        scenarios / "phone_platform" / "message.py": MESSAGES,
        scenarios / "phone_platform" / "reminder.py": EMPTY.format(name="ReminderApi"),
        scenarios / "phone_platform" / "food_services.py": EMPTY.format(name="FoodPlatform"),
        scenarios / "travel.py": TRAVEL,
        folder / "model_inference" / "apimodel_inference.py": f"import openai\nSAVED_CLASS = {SAVED!r}\n",
        folder
        / "model_inference"
        / "prompt_en.py": 'BASE_PROMPT_EN = """Be kind.\n\nFunction Calls:\n[f()]"""\nTRAVEL_PROMPT_EN = "Fly."\n',
        scenarios.parent
        / "APIModel_user.py": f"SYSTEM_PROMPT_BASE_EN = {RULES!r}\nSYSTEM_PROMPT_TRAVEL_EN = {RULES!r}\n",
    }
    data = folder / "data_all" / "data_en"
    for category in TASKS:
        for path, rows in ((data, TASKS[category]), (data / "possible_answer", TRUTHS[category])):
            files[path / f"data_agent_{category}.json"] = "\n".join(map(json.dumps, rows))
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
