"""Replies of a model to the questions of examples/converters: good ones, a wrong one, a hostile one, and one that is unreadable at first.

`respond` is for tests/fake_endpoint.py.
"""

from __future__ import annotations

from typing import Any

SOURCE = "km to miles; Celsius to Fahrenheit; feet to metres; stones to kg; acres to hectares"
KEYS = ["km_to_miles", "celsius_to_fahrenheit", "feet_to_metres", "stones_to_kg", "acres_to_hectares"]
GOOD = ["km_to_miles", "celsius_to_fahrenheit", "acres_to_hectares"]
REPLIES = {
    "km to miles": '```json\n{"expression": "value * 0.621371", "value": 10, "result": 6.21}\n```',
    "Celsius to Fahrenheit": '{"expression": "value * 9 / 5 + 32", "value": 100, "result": 212}',
    # wrong: the example does not hold
    "feet to metres": '```json\n{"expression": "value * 0.3048", "value": 10, "result": 3.5}\n```',
    # hostile: it would end the process
    "stones to kg": '```json\n{"expression": "__import__(\'os\')._exit(0)", "value": 1, "result": 6.35}\n```',
    "acres to hectares": '```json\n{"expression": "value * 0.404686", "value": 100, "result": 40.47}\n```',
}


def respond(body: dict[str, Any]) -> str:
    """The reply to a request: that of its conversion; the first one to acres is not JSON."""
    messages = body["messages"]
    what = messages[0]["content"].rpartition("Convert: ")[2].strip()
    if what == "acres to hectares" and len(messages) == 1:
        return "An acre is 0.404686 hectares."
    return REPLIES[what]
