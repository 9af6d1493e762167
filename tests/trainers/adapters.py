"""The adapters as drivers of the conformance suite. Imported in their own environment only."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
from openenv.core import GenericEnvClient

import simia.trainers.gymnasium
import simia.trainers.skyrl
from simia.envs.text_episode import share_environment
from tests.serve.environment_servers import PortalServer
from tests.trainers.conformance import rows_as_text


class Gym:
    """`gymnasium.make` and its wrappers: the environment checker and the guard of the order of calls."""

    exact, shares = True, True
    groups = itertools.count()

    def open(self, stage: dict[str, Any]) -> None:
        self.env = gymnasium.make("simia/Pack-v0", stage=stage)

    def reset(self, task: str) -> str:
        # Equal seeds are a group, whose answers are kept: so each time another one.
        text, _ = self.env.reset(seed=0, options={"task": task, "group": str(next(self.groups))})
        return str(text)

    def act(self, text: str) -> tuple[str, float | None, bool]:
        heard, reward, terminated, truncated, info = self.env.step(text)
        done = terminated or truncated
        assert info["aborted"] is (done and "score" not in info)
        assert reward == info.get("score", 0.0)
        return heard, info.get("score"), done

    def close(self) -> None:
        self.env.close()


class Sky:
    exact, shares = True, True

    def open(self, stage: dict[str, Any]) -> None:
        self.stage, self.env = stage, None
        self.lease = share_environment(stage)

    def reset(self, task: str) -> str:
        if self.env is not None:
            self.env.close()
        self.env = simia.trainers.skyrl.PackEnv(extras={"task": task, "max_turns": 50}, stage=self.stage)
        prompt, _ = self.env.init([{"role": "user", "content": "-"}])
        return "\n\n".join(row["content"] for row in prompt)

    def act(self, text: str) -> tuple[str, float | None, bool]:
        out = self.env.step(text)
        assert isinstance(out["reward"], float)
        lost = out["metadata"]["aborted"]
        if out["done"]:
            assert self.env.get_metrics()["aborted"] is lost
        return rows_as_text(out["observations"]), out["reward"] if out["done"] and not lost else None, out["done"]

    def close(self) -> None:
        if self.env is not None:
            self.env.close()
        self.lease.close()


class Net:
    """A server of its own on a port of this machine, and OpenEnv's client over its WebSocket."""

    exact, shares = True, True

    def open(self, stage: dict[str, Any], **settings: Any) -> None:
        self.portal = PortalServer(stage, **settings)
        self.server, self.kept = self.portal.running.server, self.portal.running.kept
        self.port, self.url = self.portal.running.port, self.portal.running.root
        self.client = GenericEnvClient(base_url=self.url).sync()

    def reset(self, task: str) -> str:
        return str(self.client.reset(task=task).observation["text"])

    def act(self, text: str) -> tuple[str, float | None, bool]:
        result = self.client.step({"message": text})
        ended = result.observation["end"]
        assert result.done is (ended is not None)
        assert (ended == "aborted") is (result.done and result.reward is None)
        return result.observation["text"], result.reward, result.done

    def close(self) -> None:
        self.client.close()
        self.portal.close()
