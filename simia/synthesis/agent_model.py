"""The model of an agent that plays episodes in a stage. Its requests go through the stage's context, which stores the replies."""

from __future__ import annotations

from simia.llm.types import LLMFault, Reply, Request
from simia.synthesis.stage import StageContext


class ModelOfStage:
    """The model of a role as an agent asks it, through the context of a stage. `fault` keeps the first fault that is not the agent's: a
    conversation longer than the model's context is the agent's and ends its episode."""

    def __init__(self, context: StageContext, name: str, role: str) -> None:
        """`name`: of the model, in the keys of replies. `role`: which model of the config is asked."""
        self._context, self._role = context, role
        self.alias = self.model = name
        self.fault: LLMFault | None = None

    @property
    def backend(self) -> ModelOfStage:
        """The object with the names (`alias`, `model`) that identify replies: this one."""
        return self

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the reply. Raises `LLMFault`."""
        try:
            return await self._context.send(request, label=draw, role=self._role)
        except LLMFault as fault:
            if not fault.exceeds_context:
                self.fault = self.fault or fault
            raise
