"""The estimate of a training whose simulator holds the state: a request for each call, and none for look-ups that code answers."""

from __future__ import annotations

from typing import Any

import pytest

from simia.envs.config import EnvironmentConfig
from simia.envs.opening import make_backend
from simia.llm.embedded import EmbeddedSettings
from simia.pack import Pack
from simia.trainers.training_cost import RoleRequests, add_tool_requests
from simia.trajectory import Message, ToolCall


@pytest.mark.parametrize(
    ("settings", "requests"), [({}, 3), ({"compute": "reads"}, 1), ({"stateful": False, "context": 120_000}, 2)]
)
def test_requests_of_a_world_that_holds_the_state(settings: dict[str, Any], requests: int) -> None:
    pack = Pack.load("customer_service")
    how = {"pack": "customer_service", "backend": "simulated", "backend_settings": {"knowledge": "state", **settings}}
    config = EnvironmentConfig.model_validate(how)
    order = {"order_id": "ORD-20417", "email": "x@y.z"}
    reads = [ToolCall(id=name, name=name, arguments=order) for name in ("get_order", "get_refund")]
    write = ToolCall(id="c", name="cancel_order", arguments={"order_id": "ORD-20417", "reason": "late"})
    messages = [Message(role="assistant", calls=reads), Message(role="assistant", calls=[write])]
    role = RoleRequests(EmbeddedSettings())
    add_tool_requests(role, make_backend(pack, config), config, pack, pack.tasks[0], messages)
    assert role.requests == requests
    assert ("orders ORD-20417:" in role.last) is True
