"""The tasks of solved conversations pass the verification gate: stages `verdicts` and `gated`, as for scenarios. Key: that of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from simia.synthesis.conversations.conversation_tasks import list_conversation_tasks
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageInput, StageOutputs
from simia.synthesis.stages.gated import Gated, Verdicts


class ConversationVerdicts(Verdicts):
    """Verify all conversations of a composition. Key: the composition."""

    def __init__(self) -> None:
        super().__init__([])

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found = []
        for key, tasks in list_conversation_tasks(outputs).items():
            value = {
                "built": outputs.of("compositions")[key]["built"],
                "tasks": {name: dump(task) for name, task in tasks.items()},
                "words": {name: "\n".join(goal.query for goal in task.goals) for name, task in tasks.items()},
            }
            found.append(StageInput(key, value))
        return found


class GatedConversations(Gated):
    """Give each conversation its verdict. The agents' success was measured when the turns were solved."""

    def __init__(self) -> None:
        super().__init__([], TaskDifficultySettings())

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        found = []
        for key, tasks in list_conversation_tasks(outputs).items():
            refused = outputs.of("verdicts").get(key, {"refused": {}})["refused"]
            found += [
                StageInput(name, {"task": dump(task), "refused": refused.get(name)}) for name, task in tasks.items()
            ]
        return found
