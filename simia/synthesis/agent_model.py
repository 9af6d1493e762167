"""The model of an agent that plays episodes within a stage: its requests go through the stage's context, so replies are stored."""

from __future__ import annotations

from simia.llm.types import LLMFault, Reply, Request
from simia.synthesis.stage import StageContext


class ModelOfStage:
    """What an agent asks: the model of a role, through the context of a stage. Keeps the first fault that says nothing about the agent: not that its
    conversation is longer than its model's context, which ends its episode."""

    def __init__(self, context: StageContext, name: str, role: str) -> None:
        """`name`: of the model, in the keys of replies. `role`: which model of the config is asked."""
        self._context, self._role = context, role
        self.alias = self.model = name
        self.fault: LLMFault | None = None

    @property
    def backend(self) -> ModelOfStage:
        """The names under which replies are known."""
        return self

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the reply. Raises `LLMFault`."""
        try:
            return await self._context.send(request, label=draw, role=self._role)
        except LLMFault as fault:
            if not fault.exceeds_context:
                self.fault = self.fault or fault
            raise
