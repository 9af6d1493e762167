"""Estimate what a run costs before a request is sent: every kind of request that it sends, with tokens and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simia.amplification.model_mix import get_writer
from simia.amplification.seeds import Seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.prices import Price
from simia.quality.fast_tokens import estimate_text_tokens
from simia.quality.judging.rubric import Rubric
from simia.quality.judging.settings import Judge
from simia.terminal import write_count
from simia.trajectory import Trajectory, Usage

SAMPLE = 50  # items or seeds whose prompts are rendered
VERDICT_TOKENS = 50  # a judge's reason and verdict on one dimension


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests of one kind to one model: how many, and the mean tokens of each.

    `static`: prompt tokens that the requests have in common, which a prefix cache can serve. `price`: None if unknown.
    """

    what: str
    model: str
    requests: int
    prompt: int
    reply: int
    static: int = 0
    price: Price | None = None

    def cost(self, *, cached: bool) -> float | None:
        """Return the dollars for all requests, with or without a prefix cache; None for an unknown price."""
        if self.price is None:
            return None
        usage = Usage(prompt=self.prompt, completion=self.reply, cached=self.static if cached else 0)
        return self.price.of(usage) * self.requests


def estimate_cost(config: AmplifyConfig, seeds: Seeds, simulator: Simulator) -> list[RequestGroup]:
    """Estimate the requests of a run in which every item is accepted.

    Args:
        config: The run's settings.
        seeds: Its seeds, after the rules.
        simulator: Renders its prompts.

    Returns:
        A group for each model that writes trajectories, then one for each further kind of request.
    """
    groups = estimate_writing(config, seeds, simulator)
    if config.prefilter.enabled:
        groups.append(estimate_judge("pre-filter of the seeds", config.prefilter, config.llm, seeds, len(seeds.order)))
    if config.judge.enabled:
        groups.append(estimate_judge("judge of what is accepted", config.judge, config.llm, seeds, config.n))
    return groups


def estimate_writing(config: AmplifyConfig, seeds: Seeds, simulator: Simulator) -> list[RequestGroup]:
    """Estimate the requests for trajectories, by model. A reply is taken to be as long as a seed."""
    items = [simulator.item(ord_) for ord_ in range(min(len(seeds.order), SAMPLE))]
    prompts = [(simulator.forms[get_writer(item)], simulator.prompt(item).messages) for item in items]
    reply = measure_mean([write_reply(seed) for seed in seeds.order])
    weights = [writer.weight for writer in simulator.writers]
    groups = []
    for place, llm in enumerate((config.llm, *(each.llm for each in config.mix))):
        own = [messages for form, messages in prompts if form == simulator.forms[place]]
        own = own or [messages for _, messages in prompts]
        groups.append(
            RequestGroup(
                what="trajectories",
                model=simulator.writers[place].model,
                requests=round(config.n * weights[place] / sum(weights)),
                prompt=measure_mean([join_contents(messages) for messages in own]),
                reply=reply,
                static=measure_mean([join_contents(messages[:-1]) for messages in own]),
                price=find_price(llm),
            )
        )
    return groups


def estimate_judge(what: str, judge: Judge, default: LLMSettings, seeds: Seeds, trajectories: int) -> RequestGroup:
    """Estimate a judge's requests for this number of trajectories, each taken to be as long as a seed. `default`: the run's own model."""
    rubric, llm = Rubric(judge), judge.llm or default
    prompts = [rubric.messages(seed) for seed in take_sample(seeds.order)]
    return RequestGroup(
        what=what,
        model=open_backend(llm, say=lambda _: None).model,
        requests=trajectories * judge.votes,
        prompt=measure_mean([join_contents(messages) for messages in prompts]),
        reply=VERDICT_TOKENS * len(rubric.dimensions),
        static=measure_mean([join_contents(messages[:-1]) for messages in prompts]),
        price=find_price(llm),
    )


def describe_cost(groups: Sequence[RequestGroup]) -> list[str]:
    """Write the estimate for people: a line for each group where there are several, and the sum."""
    lines = []
    if len(groups) > 1:
        for each in groups:
            size = f"{write_count(each.requests, 'request')} of about {each.prompt:,} prompt and {each.reply:,} reply tokens"
            lines.append(f"  {each.what} by {each.model}: {size}, {format_range([each])}")
    unknown = list(dict.fromkeys(each.model for each in groups if each.price is None))
    known = [each for each in groups if each.price is not None]
    if unknown:
        lines.append(
            f"price: unknown for {', '.join(unknown)}; set llm.price"
            + ("" if not known else f"; the rest: about {format_range(known)}")
        )
    else:
        lines.append(f"price: about {format_range(known)}; reasoning tokens and rejected items not counted")
    return lines


def format_range(groups: Sequence[RequestGroup]) -> str:
    """Write the price of some groups, with a prefix cache and without one."""
    served, whole = (sum(each.cost(cached=cached) or 0.0 for each in groups) for cached in (True, False))
    if any(each.price is None for each in groups):
        return "price unknown"
    return f"${served:,.2f} to ${whole:,.2f}, depending on the prefix cache" if served < whole else f"${whole:,.2f}"


def write_reply(seed: Trajectory) -> str:
    """Write the messages of a seed as text, without their `extra` fields, which no model writes."""
    messages = seed.model_dump(mode="json", include={"messages"}, exclude_defaults=True).get("messages", [])
    return str([{key: value for key, value in message.items() if key != "extra"} for message in messages])


def take_sample(seeds: Sequence[Trajectory]) -> list[Trajectory]:
    """Return up to `SAMPLE` seeds at equal distances in the list."""
    return list(seeds[:: max(1, len(seeds) // SAMPLE)])[:SAMPLE]


def join_contents(messages: Sequence[dict[str, object]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


def measure_mean(texts: Sequence[str]) -> int:
    """Return the mean number of tokens."""
    return sum(map(estimate_text_tokens, texts)) // max(1, len(texts))
