"""The dialects in which a simulator can be asked, by name: each writes the prompts of a pack and reads the replies."""

from __future__ import annotations

from simia.envs.worlds.simulated.agentworld import AgentWorldFeedback, TerminalFeedback
from simia.envs.worlds.simulated.brief import BriefFeedback
from simia.envs.worlds.simulated.feedback import Feedback

DIALECTS: dict[str, type[Feedback]] = {
    "simia": Feedback,
    "brief": BriefFeedback,
    "agentworld-mcp": AgentWorldFeedback,
    "agentworld-terminal": TerminalFeedback,
}
