"""A pack as a Gymnasium environment: text in, text out.

    import gymnasium, simia.trainers.gymnasium
    env = gymnasium.make("simia/Pack-v0", stage={"pack": "customer_service"})
    text, info = env.reset(seed=3)                       # or options={"task": "cs-007", "group": "12/cs-007"}
    text, reward, terminated, truncated, info = env.step('<tool_call>\\n{"name": …}\\n</tool_call>')

The reward comes with the end and is 0.0 before. Gymnasium needs a number for aborted episodes too: the reward is 0.0, `truncated` is True
and `info["aborted"]` is True. Mask these episodes, since this 0.0 is not a verdict. Verdicts are in `info["score"]`, which an aborted
episode lacks. For several environments use `SyncVectorEnv`, or `AsyncVectorEnv` with `shared_memory=False`, since shared memory supports
listed characters only. Limit turns by the stage's `episode.turns`, which scores episodes; a `TimeLimit` would end them without a score.

Imports gymnasium, which the user's environment must have: `pip install 'gymnasium>=1.0'`.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.text_episode import (
    Keep,
    Stage,
    TextEpisodes,
    TextStep,
    messages_to_text,
    render_call,
    share_environment,
)
from simia.errors import UserError

try:
    import gymnasium  # type: ignore[import-not-found,unused-ignore]
    from gymnasium import spaces  # type: ignore[import-not-found,unused-ignore]
except ModuleNotFoundError as error:
    raise ImportError(
        f"simia.trainers.gymnasium needs the package {error.name}: pip install 'gymnasium>=1.0'"
    ) from None

MOST_CHARACTERS = 1 << 20
SAMPLED = 64


class AnyText(spaces.Text):  # type: ignore[misc,unused-ignore]
    """Strings of any characters up to a length, unlike `Text`, which allows listed characters only. Samples are short and printable."""

    def __init__(self, max_length: int, seed: Any = None) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        if mask is None and probability is None:
            mask = (int(self.np_random.integers(0, min(SAMPLED, self.max_length) + 1)), None)
        return str(super().sample(mask, probability))


class ToolEnv(gymnasium.Env):  # type: ignore[misc,unused-ignore]
    """Play one episode at a time. All environments with the same settings share one stage.

    `reset(seed=…)` plays the task with index `seed mod number of tasks` in a world of that seed. Episodes of equal seeds are a group: they
    share simulated answers, within one process or one store. Without a seed, task and world are sampled from `np_random`, and nothing is
    shared. Options: `task`, and `group` to name the group, such as one for each step of a trainer.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        stage: Stage,
        *,
        render_mode: str | None = None,
        max_characters: int = MOST_CHARACTERS,
        keep: Keep | None = None,
        store: str | Path | None = None,
    ) -> None:
        """Open the stage: its settings, or an open environment. Raises `UserError`.

        `store`: folder of stored replies, as for `open_environment`. A text longer than `max_characters` is cut in the middle.
        """
        if render_mode not in (None, "ansi"):
            raise UserError(f"render_mode is {render_mode!r}: a pack is rendered as text, ansi")
        self._lease = share_environment(stage, store=Path(store) if store else None)
        self._session: TextEpisodes = self._lease.session(keep)
        self.render_mode, self._most = render_mode, max_characters
        self.observation_space, self.action_space = AnyText(max_characters), AnyText(max_characters)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        options = options or {}
        if unknown := sorted(options.keys() - {"task", "group"}):
            raise UserError(f"reset has no option {unknown[0]!r}; there are: task, group")
        drawn = int(self.np_random.integers(1 << 31)) if seed is None else seed
        task, group = options.get("task"), options.get("group")
        if group is None and seed is not None:
            group = f"seed {seed}/{task or self._session.select_task(seed)}"
        heard = event_loop.run(self._session.reset(task, seed=drawn, group=group))
        episode = self._session.episode
        assert episode is not None
        return self._cut(heard.text), {**self._info(heard), "tools": [tool.flat() for tool in episode.tools]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn. Raises `UserError` if no episode is running; failed infrastructure does not raise."""
        heard = event_loop.run(self._session.act(action))
        truncated = heard.ended in ("truncated", "aborted")
        return self._cut(heard.text), heard.value or 0.0, heard.ended == "terminated", truncated, self._info(heard)

    def render(self) -> str | None:
        """Return the conversation so far, as text."""
        episode = self._session.episode
        if self.render_mode is None or episode is None:
            return None
        calls = [", ".join(map(render_call, m.calls)) for m in episode.view.messages]
        rows = zip(episode.view.messages, calls, strict=True)
        return "\n\n".join(f"{m.role}: {messages_to_text([m]) or text}" for m, text in rows)

    def close(self) -> None:
        if self._lease.open:
            event_loop.run(self._session.leave())
            self._lease.close()

    def _info(self, heard: TextStep) -> dict[str, Any]:
        assert self._session.episode is not None
        info: dict[str, Any] = {"task": self._session.episode.task.id, "messages": heard.messages}
        info["aborted"] = heard.ended == "aborted"
        if heard.end is not None:
            info |= {"end": heard.ended, "code": str(heard.code or "")}
            if heard.value is not None and heard.reward is not None:
                info |= {"score": heard.value, "parts": dict(heard.reward.parts)}
        return info

    def _cut(self, text: str) -> str:
        if len(text) <= self._most:
            return text
        half = max(0, self._most // 2 - 8)
        return f"{text[:half]}\n[…]\n{text[len(text) - half :]}"[: self._most]


def register(name: str = "simia/Pack-v0", stage: Stage | None = None) -> None:
    """Register a name for `gymnasium.make(name)`, which then opens this stage or open environment. None: the stage is passed to `make`."""
    if isinstance(stage, Environment):  # make copies registered arguments, but an open environment cannot be copied

        def opened(**given: Any) -> ToolEnv:
            return ToolEnv(**{"stage": stage, **given})

        gymnasium.register(name, entry_point=opened, disable_env_checker=False)
        return
    kwargs = {} if stage is None else {"stage": stage}
    gymnasium.register(name, entry_point="simia.trainers.gymnasium:ToolEnv", kwargs=kwargs, disable_env_checker=False)


register()
