"""A remote environment by its address: it plays what the local one plays, and is the same class of thing."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client")

from simia import event_loop
from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.text_episode import share_environment
from simia.errors import Code, UserError
from simia.pack import Pack
from tests.serve.environment_servers import PortalServer, served

TASK = "cs-009"


async def play_reference(environment: Environment, task: str) -> Episode:
    """Play the pack's own solution, which the server does not tell."""
    episode = await environment.reset(task, seed=3)
    await play(episode, ReferenceAgent(Pack.load("customer_service").task(task)))
    return episode


async def test_an_address_plays_an_episode_as_the_pack_does() -> None:
    opened = await open_environment("customer_service", user="scripted")
    async with opened as local, served() as running, await open_environment(running.url) as remote:
        assert isinstance(remote, Environment)
        assert [task.id for task in remote.tasks] == [task.id for task in local.tasks]
        near, far = [await play_reference(each, TASK) for each in (local, remote)]
        assert far.reward is not None
        assert far.reward == near.reward
        assert far.reward.value == 1.0
        assert far.messages == near.messages
        assert (far.end, far.issues) == (near.end, near.issues)
        left, right = near.trajectory.to_row(), far.trajectory.to_row()
        del left["evidence"]
        assert right == left
        assert [row.task_id for row in running.kept] == [TASK]
        assert running.kept[0].evidence is not None


def test_an_address_is_a_stage_of_the_adapters_of_text() -> None:
    server = PortalServer({"pack": "customer_service", "user": "scripted"})
    url = server.running.url
    lease = share_environment({"pack": url, "tasks": [TASK]})
    try:
        session = lease.session()
        opening = event_loop.run(session.reset(seed=0))
        assert opening.messages[0]["role"] == "system"
        heard = event_loop.run(session.act('<tool_call>\n{"name": "get_order", "arguments": {}}\n</tool_call>'))
        assert "<tool_response>" in heard.text
        assert event_loop.run(session.stop(Code.MAX_TOKENS)).value == 0.0
        with pytest.raises(UserError, match="task 'cs-001' is not among the 1 that are played here"):
            event_loop.run(session.reset("cs-001"))
        event_loop.run(session.leave())
        with pytest.raises(UserError, match="cannot be forked"):
            event_loop.run(fork_episode(lease.environment))
    finally:
        lease.close()
        server.close()


async def fork_episode(environment: Environment) -> None:
    await (await environment.reset(TASK)).fork()


async def test_the_score_of_a_running_episode_and_a_task_of_ones_own() -> None:
    async with served() as running, await open_environment(running.url) as remote:
        episode = await remote.reset(TASK)
        assert (await episode.score()).value == 0.0
        assert episode.end is None
        await episode.stop(Code.AGENT_FAILED, aborted=True, detail="the model is away")
        assert episode.end is not None
        assert (episode.end.kind, episode.issues[-1].detail) == ("aborted", "the model is away")
        await episode.close()
        changed = remote.tasks[0].model_copy(update={"opening": "Something else."})
        with pytest.raises(UserError, match="plays the server's own tasks"):
            await remote.reset(changed)
