"""RAGEN's proxy, which rolls out a step, with a loop that ends when all episodes are over.

The stock one goes a fixed number of rounds with all environments. Here episodes may wait for their turn (`at_once`), and those of a
later turn have their own number of rounds; an empty batch, which would kill the engine, is not sent.
"""

from __future__ import annotations

from typing import Any

from ragen.llm_agent.agent_proxy import LLMAgentProxy  # type: ignore[import-not-found,unused-ignore]

from simia.trainers.aborted import log_aborted


class Proxy(LLMAgentProxy):  # type: ignore[misc,unused-ignore]
    """Raises `UserError` for what our manager and context refuse, and for a step that would train nothing."""

    def rollout(self, dataproto: Any, val: bool = False) -> Any:
        """A step's episodes, to their ends. Where none of them has a reward nothing could be learnt, but the optimizer would go on by
        its momentum and the schedule by a step; so training ends, to be started again from the last checkpoint."""
        manager = self.val_es_manager if val else self.train_es_manager
        context = self.val_ctx_manager if val else self.train_ctx_manager
        running = manager.reset()
        while running:
            said: list[dict[str, Any]] = []
            if speaking := context.opened(running):
                asked = context.get_lm_inputs(speaking, prepare_for_update=False)
                asked.meta_info = dataproto.meta_info
                said = context.get_env_inputs(self.generate_sequences(asked))
            running = manager.step(said)
        states = manager.get_rollout_states()
        log_aborted([entry["env"].playing for entry in manager.envs], manager.steps, learns=not val)
        return context.formulate_rollouts(states)
