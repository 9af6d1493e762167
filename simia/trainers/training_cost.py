"""Estimate the cost of the models in a training's environments, for a dry run: requests, tokens and price of each role.

For a sample of tasks, every prompt is written, turn by turn along the task's solution: for the model that plays the tools, the user and
the judge. This also finds prompts that cannot be written. A policy that plays until it is truncated costs more, so a second sum assumes
that all episodes last as long as `episode.turns` allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simia.amplification.cost_estimate import RequestGroup, format_range, join_contents
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import list_packs, make_backend
from simia.envs.remote.remote_pack import list_addresses
from simia.envs.rewards.judge import RewardJudge
from simia.envs.role_models import judges_by_model, simulates_tools, user_kind
from simia.envs.several_packs import CombinedPack
from simia.envs.users import EpisodeView, LLMUser
from simia.envs.worlds.simulated.backend import (
    SimulatedBackend,
    describe_initial_state,
    load_tables,
    make_initial_state,
)
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall
from simia.envs.worlds.simulated.result_examples import find_example_calls, write_on_one_line
from simia.envs.worlds.world import Backend
from simia.formats.hermes import join_system
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.engine import Engine
from simia.llm.journals import PassingJournal
from simia.pack import Pack
from simia.quality.fast_tokens import estimate_text_tokens
from simia.task import Task
from simia.terminal import write_count
from simia.trainers.episode_plan import EpisodePlan
from simia.trainers.plan_notes import describe_caps, describe_other_pack, describe_rewards, describe_users
from simia.trajectory import End, Message, ToolCall, Trajectory, Usage

SAMPLE = 20  # tasks whose prompts are written
VERDICT_TOKENS = 150  # a judge's reason and verdict
WRAPPER_TOKENS = 40  # tokens that the simulator writes around a result: JSON and changes
UNKNOWN_RESULT = "the result of a tool, of which the pack has no example " * 4
NEARLY_FULL = 0.9  # share of the limit for a prompt
THINKING_TOKENS = 500  # extra tokens of a reply, for the price of a reasoning model
UNHEARD = "the user is asked for a missing opening and once at the end: TRL's environment_factory hears no answer; through=rollout_func does"
UNCOUNTED = "reasoning tokens, repeated requests and what a group shares are not counted"


@dataclass(slots=True)
class RoleRequests:
    """The requests of one role in the sampled episodes: their number and their tokens, summed."""

    llm: LLMSettings
    context: int = 0
    """Most tokens of a prompt; 0: no bound."""
    requests: int = 0
    prompt: int = 0
    shared: int = 0
    """Prompt tokens in a common prefix with the previous request, which a prefix cache can serve."""
    reply: int = 0
    growth: int = 0
    """Prompt tokens that grow in proportion to the length of an episode."""
    last: str = ""

    def add(self, messages: Sequence[dict[str, object]], reply: int, growth: int) -> None:
        text = join_contents(messages)
        self.requests += 1
        self.prompt += estimate_text_tokens(text)
        self.shared += estimate_text_tokens(text[: count_same(self.last, text)])
        self.reply += reply
        self.growth += growth
        self.last = text

    def group(self, what: str, episodes: int, sampled: int, longer: float, *, grows: bool) -> RequestGroup:
        """Return the requests of `episodes` episodes, each `longer` times as long as sampled. `grows`: whether their number grows with the length."""
        count = max(1, self.requests)
        prompt = (self.prompt + self.growth * (longer - 1)) / count
        prompt = min(prompt, max(self.context, self.prompt / count)) if self.context else prompt
        shared = min(prompt, self.shared / count + (prompt - self.prompt / count if grows else 0))
        return RequestGroup(
            what=what,
            model=open_backend(self.llm, say=lambda _: None).model,
            requests=round(episodes * self.requests / sampled * (longer if grows else 1)),
            prompt=round(prompt),
            reply=round(self.reply / count),
            static=round(shared),
            price=find_price(self.llm),
        )


def count_same(before: str, text: str) -> int:
    """Return the length of the common prefix, by binary search."""
    low, high = 0, min(len(before), len(text))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == text[:middle] else (low, middle - 1)
    return low


@dataclass(slots=True)
class SampledEpisodes:
    """Sampled episodes of an environment, played along their tasks' solutions, with the requests of each role."""

    stage: EnvironmentConfig
    dialogue: bool = True
    tools: RoleRequests | None = None
    user: RoleRequests | None = None
    judge: RoleRequests | None = None
    turns: int = 0
    episodes: int = 0
    unsolved: int = 0
    results: dict[str, dict[str, str]] = field(default_factory=dict)
    """Pack → tool → an example of its result."""
    worlds: dict[str, Backend] = field(default_factory=dict)
    """Pack → its back end, not started."""

    def __post_init__(self) -> None:
        simulator = self.stage.simulator or self.stage.llm
        if simulates_tools(self.stage):
            self.tools = RoleRequests(simulator)
        if judges_by_model(self.stage):
            self.judge = RoleRequests(self.stage.judge or simulator, self.stage.oracle.context)

    def add(self, config: EnvironmentConfig, pack: Pack, task: Task) -> None:
        """Write the prompts of one task. Raises `UserError` for one that cannot be written."""
        messages = self.outline(pack, task)
        self.episodes += 1
        self.turns += sum(message.role == "assistant" for message in messages)
        if self.tools is not None:
            if pack.name not in self.worlds:
                self.worlds[pack.name] = make_backend(pack, config)
            add_tool_requests(self.tools, self.worlds[pack.name], config, pack, task, messages)
        if user_kind(config, pack) == "llm":
            self.user = self.user or RoleRequests(config.player or config.simulator or config.llm)
            add_user_requests(self.user, config, pack, task, messages, dialogue=self.dialogue)
        if self.judge is not None:
            trajectory = Trajectory(pack=pack.name, task_id=task.id, messages=messages, end=End(kind="terminated"))
            judge = RewardJudge(make_engine(self.judge.llm, config), pack, config.oracle)
            for _ in range(config.oracle.votes):
                self.judge.add(judge.request(trajectory, task).messages, VERDICT_TOKENS, count_tokens(messages))

    def outline(self, pack: Pack, task: Task) -> list[Message]:
        """Return the messages of an episode: the recorded reference, else the task's script; without a solution those of a seed."""
        recorded = pack.references.get(task.id)
        if recorded is not None:
            return recorded.messages
        if not task.solved:
            if pack.seeds:
                return pack.seeds[self.episodes % len(pack.seeds)].messages
            self.unsolved += 1
        known = self.results.get(pack.name)
        if known is None:
            found = find_example_calls(pack, 1, references=True)
            known = self.results[pack.name] = {
                tool: write_on_one_line(each[0].result) for tool, each in found.items() if each
            }
        return write_outline(task, known)


def write_outline(task: Task, results: dict[str, str]) -> list[Message]:
    """Write the task's script as messages. `results`: tool → an example of its result."""
    messages: list[Message] = []
    for turn in task.make_script():
        if turn.user is not None:
            messages.append(Message(role="user", content=turn.user))
        elif turn.agent is not None:
            messages.append(Message(role="assistant", content=turn.agent))
        else:
            actions = enumerate(turn.calls or [], start=len(messages))
            calls = [ToolCall(id=f"call_{n}", name=each.name, arguments=each.arguments) for n, each in actions]
            messages.append(Message(role="assistant", calls=calls))
            messages += [
                Message(role="tool", content=results.get(c.name, UNKNOWN_RESULT), name=c.name, call_id=c.id)
                for c in calls
            ]
    return messages


def add_tool_requests(
    role: RoleRequests,
    backend: Backend,
    config: EnvironmentConfig,
    pack: Pack,
    task: Task,
    messages: Sequence[Message],
) -> None:
    """Write the prompts of the model that plays the tools: one for each turn with calls, or for each call on a held state."""
    world = getattr(backend, "simulated", backend)
    if not isinstance(world, SimulatedBackend):
        return
    settings = world.settings
    role.context = settings.context
    tables = read_prompt_tables(pack, world)
    told = (
        describe_initial_state(pack, task, tables, settings)[0] if tables is not None and not settings.stateful else ""
    )
    state = make_initial_state(task, tables) if settings.holds_state else {}
    results = {message.call_id: message.text for message in messages if message.role == "tool"}
    history: list[AnsweredCall] = []
    first = 0
    for message in messages:
        calls = [call for call in message.calls if plays(config, call.name) and not is_looked_up(world, call.name)]
        # A world that holds a state makes one request for each call.
        batches = [[call] for call in calls] if settings.holds_state else world.feedback.batch_calls(calls)
        for group in batches if calls else []:
            if settings.holds_state:
                prompt = world.write_request(task, history, "agent", group[0], state, len(history))
            else:
                prompt = world.feedback.messages(task, history, "", [("agent", call) for call in group], told)
            size = estimate_text_tokens(join_contents(prompt))
            first = first or size
            answers = [Answer(results.get(call.id, UNKNOWN_RESULT)) for call in group]
            reply = sum(estimate_text_tokens(answer.text) + WRAPPER_TOKENS for answer in answers)
            role.add(prompt, reply, size - first)
            history += [
                AnsweredCall("agent", call.name, call.arguments or {}, answer)
                for call, answer in zip(group, answers, strict=True)
            ]


def read_prompt_tables(pack: Pack, world: SimulatedBackend) -> Any:
    """Return the tables that the simulator's prompts show, except those that only the pack's code knows; None: no tables."""
    if world.settings.knowledge not in ("state", "code"):
        return None
    path = pack.path_of("state")
    if world.code is not None and (path is None or path.suffix != ".json"):
        return {}
    return load_tables(pack)


def is_looked_up(world: SimulatedBackend, tool: str) -> bool:
    """Whether the pack's code answers this tool of the agent in a simulated world. The world need not be started."""
    return world.settings.compute == "reads" and world.specs["agent"][tool].writes == []


def plays(config: EnvironmentConfig, tool: str) -> bool:
    """Whether the model plays this tool."""
    backend = config.backend
    return isinstance(backend, str) or backend.get(tool, backend.get("*")) in ("simulated", "shadow")


def add_user_requests(
    role: RoleRequests,
    config: EnvironmentConfig,
    pack: Pack,
    task: Task,
    messages: Sequence[Message],
    *,
    dialogue: bool = True,
) -> None:
    """Write the prompts of the model that plays the user: one for each of its messages except a given opening, and one for the end.

    `dialogue` false: only the opening, if it is not given, and the end.
    """
    user = LLMUser(make_engine(role.llm, config), pack, task, config.user_settings)
    heard = [message for message in messages if message.role in ("user", "assistant") and message.text]
    places = [n for n, message in enumerate(heard) if message.role == "user"]
    asked = [n for n in places if (n and dialogue) or (not n and not task.opening)] + [len(heard)]
    first = 0
    for n in asked:
        prompt = user.request(EpisodeView(None, tuple(heard[:n]), pack.user_tools)).messages
        size = estimate_text_tokens(join_contents(prompt))
        first = first or size
        role.add(prompt, estimate_text_tokens(heard[n].text) if n < len(heard) else 10, size - first)


def make_engine(llm: LLMSettings, config: EnvironmentConfig) -> Engine:
    """Make an engine that is never started; it only determines how requests to its model are written."""
    return Engine(open_backend(llm, say=lambda _: None), PassingJournal(), config.limits, find_price(llm))


def count_tokens(messages: Sequence[Message]) -> int:
    return sum(
        estimate_text_tokens(m.text) + sum(estimate_text_tokens(str(c.arguments)) for c in m.calls) for m in messages
    )


def sample_episodes(plan: EpisodePlan) -> SampledEpisodes:
    """Write the prompts of up to `SAMPLE` tasks, spread over the list. Raises `UserError`."""
    found = SampledEpisodes(plan.stage, plan.dialogue)
    members = {pack.name: (config, pack) for config, pack in list_packs(plan.stage, plan.pack)}
    for task in plan.tasks[:: max(1, len(plan.tasks) // SAMPLE)][:SAMPLE]:
        if isinstance(plan.pack, CombinedPack):
            name, _, own = task.id.partition("/")
            config, pack = members[name]
            found.add(config, pack, pack.task(own))
        else:
            found.add(plan.stage, plan.pack, task)
    return found


def estimate_requests(plan: EpisodePlan, sampled: SampledEpisodes, longer: float = 1.0) -> list[RequestGroup]:
    """Return the requests of the planned episodes by role. `longer`: length of an episode as a multiple of its solution."""
    roles = [
        ("tools", sampled.tools, True), ("user", sampled.user, plan.dialogue), ("judge", sampled.judge, False),
    ]  # fmt: skip
    return [
        role.group(f"{what} in {plan.what}", plan.episodes, sampled.episodes, longer, grows=grows)
        for what, role, grows in roles
        if role is not None and role.requests
    ]


def describe_training(plans: Sequence[EpisodePlan]) -> list[str]:
    """Describe the planned episodes and the cost of their models, and check the prompts. Raises `UserError`."""
    lines, usual, longest = list[str](), dict[str, list[RequestGroup]](), list[RequestGroup]()
    for plan in plans:
        if addresses := list_addresses(plan.stage):
            lines.append(
                f"{plan.what}: {write_count(plan.episodes, 'episode')} on {write_count(len(plan.tasks), 'task')} of {plan.pack.name}; {addresses[0]} keeps the "
                "solutions, so turns and requests are not counted"
            )
            usual[plan.what] = []
            if (other := describe_other_pack(plan, plans)) is not None:
                lines.append(f"  {other}")
            continue
        sampled = sample_episodes(plan)
        turns = max(1.0, sampled.turns / max(1, sampled.episodes))
        most = max(plan.stage.episode.turns, turns)
        lines.append(
            f"{plan.what}: {write_count(plan.episodes, 'episode')} on {write_count(len(plan.tasks), 'task')} of {plan.pack.name}, about {write_count(round(turns), 'turn')} each as "
            f"their solutions go, at most {most:.0f}"
        )
        if (other := describe_other_pack(plan, plans)) is not None:
            lines.append(f"  {other}")
        if sampled.unsolved:
            lines.append(
                f"  {sampled.unsolved} of {write_count(sampled.episodes, 'task')} without a solution, and the pack has no seeds: counted as one turn"
            )
        if (opening := describe_openings(plan)) is not None:
            lines.append(f"  {opening}")
        if sampled.user is not None and not plan.dialogue:
            lines.append(f"  {UNHEARD}")
        groups = usual[plan.what] = estimate_requests(plan, sampled)
        for each in groups:
            size = f"{write_count(each.requests, 'request')} of about {each.prompt:,} prompt and {each.reply:,} reply tokens"
            lines.append(f"  {each.what} by {each.model}: {size}, {format_range([each])}")
        longest += estimate_requests(plan, sampled, most / turns)
    lines += [*describe_users(plans), describe_rewards(plans)]
    if not (asked := [each for groups in usual.values() for each in groups]):
        remote = any(list_addresses(plan.stage) for plan in plans)
        return [
            *lines,
            f"price: {'what the server pays is not known here' if remote else 'nothing is asked of a model'}",
        ]
    return [*lines, *describe_price(asked, longest), *describe_caps(plans, usual)]


def describe_price(usual: Sequence[RequestGroup], longest: Sequence[RequestGroup]) -> list[str]:
    """Describe the total price for episodes of usual and of greatest length."""
    unknown = list(dict.fromkeys(each.model for each in usual if each.price is None))
    known, bound = ([each for each in groups if each.price is not None] for groups in (usual, longest))
    rest = f"unknown for {', '.join(unknown)}, set price in its settings; " if unknown else ""
    if not known:
        return [f"price: {rest.removesuffix('; ')}"]
    return [
        f"price: {rest}about {format_range(known)}; {UNCOUNTED}",
        f"price of thinking, if these models think: ${price_thinking(known):,.2f} more for each {THINKING_TOKENS} tokens that a reply's thinking takes",
        f"price if every episode goes on to its last turn: {format_range(bound)}",
    ]


def price_thinking(groups: Sequence[RequestGroup]) -> float:
    """Return the price in dollars of `THINKING_TOKENS` more tokens in each reply."""
    return sum(each.requests * each.price.of(Usage(completion=THINKING_TOKENS)) for each in groups if each.price)


def describe_openings(plan: EpisodePlan) -> str | None:
    """Compare the longest opening with the trainer's limits; None without limits. A given first message of the user counts too."""
    if plan.limit is None and plan.rest is None:
        return None
    members = {pack.name: pack for _, pack in list_packs(plan.stage, plan.pack)}
    systems = {name: estimate_text_tokens(join_system(pack.policy, pack.tools) or "") for name, pack in members.items()}
    several = isinstance(plan.pack, CombinedPack)
    sizes = [
        systems[task.id.partition("/")[0] if several else plan.pack.name]
        + estimate_text_tokens(task.opening or task.instruction)
        for task in plan.tasks
    ]
    if plan.limit is None and plan.rest is not None:
        name, most = plan.rest
        whole = f"with the {most:,} of {name} the model needs a context of {max(sizes) + most:,}"
        return f"the longest opening has about {max(sizes):,} tokens; {whole}"
    assert plan.limit is not None
    name, most = plan.limit
    longer = sum(size > most for size in sizes)
    line = f"the longest opening has about {max(sizes):,} tokens of the {most:,} that {name} leaves for it"
    if longer:
        return f"{line}: longer, and left out: {longer} of {write_count(len(sizes), 'task')}; raise it"
    if max(sizes, default=0) > NEARLY_FULL * most:
        return f"warning: {line}: more than {NEARLY_FULL:.0%} of it, by an estimate that the tokenizer may exceed; raise it"
    return line
