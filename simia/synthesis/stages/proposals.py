"""Stages `proposals1`, `proposals2`, … and `proposals`: propose environments that the pool lacks, from sources, in rounds (EnvFactory §3.2).

Each round sees the proposals of earlier rounds. A proposal is refused if it repeats a pack of the pool, an earlier proposal, or a better
proposal of its own round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from simia.llm.embeddings import make_lexical_vectors
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.sources.pool_packs import PoolEntry
from simia.synthesis.sources.proposal import (
    GroundedProposal,
    Proposal,
    ProposalSettings,
    explain_refusals,
    ground_proposal,
    read_proposals,
)
from simia.synthesis.sources.source_document import SourceDocument, group_documents
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.design import make_unique
from simia.synthesis.stages.sources import describe_earlier, describe_pool, list_documents
from simia.synthesis.stages.themes import EMBEDDING_COSINE, LEXICAL_COSINE, find_duplicates

POOL, EARLIER = "pool/", "earlier/"


class ProposalRound:
    """Asks which environments can be made from the sources and are neither in the pool nor in earlier rounds. One item."""

    def __init__(
        self, number: int, settings: ProposalSettings, topic: str, pool: Callable[[], Sequence[PoolEntry]], tools: int
    ) -> None:
        """`number`: of the round, from 1. `topic`: what is wanted, in words; may be empty. `tools`: most tools of a proposal."""
        self.name = f"proposals{number}"
        self._number, self._settings, self._topic, self._pool, self._tools = number, settings, topic, pool, tools

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        documents = list_documents(outputs, self._number)
        last = next((n for n in range(self._number - 1, 0, -1) if "all" in outputs.of(f"proposals{n}")), None)
        if last is not None and not any(f"search{n}" in outputs.made for n in range(last + 1, self._number + 1)):
            made = outputs.of(f"proposals{last}")["all"]
            if made["whole"] and not made["kept"]:
                return []  # this round would see nothing that the last round that asked has not seen
        value = {
            "documents": [dump(document) for document in documents],
            "pool": [dump(entry) for entry in self._pool()],
            "earlier": describe_earlier(outputs, self._number),
            "kept": [kept for each in range(1, self._number) for kept in list_kept(outputs, each)],
        }
        return [StageInput("all", value)] if documents else []

    async def make(self, given: StageInput, context: StageContext) -> Any:
        documents = {row["name"]: SourceDocument.model_validate(row) for row in given.value["documents"]}
        pool = [PoolEntry.model_validate(row) for row in given.value["pool"]]
        earlier = [GroundedProposal.model_validate(row) for row in given.value["kept"]]
        parts = group_documents(list(documents.values()), self._settings.characters)
        groups = self._choose_groups(parts)
        shown = {
            "topic": self._topic,
            "pool": describe_pool(pool),
            "earlier": given.value["earlier"],
            "number": self._settings.number,
            "quotes": self._settings.quotes,
            "tools": self._tools,
        }

        async def ask(number: int, sources: list[dict[str, Any]]) -> list[Proposal]:
            def read(text: str) -> list[Proposal]:
                return read_proposals(text, self._settings.number)

            values = {**shown, "sources": sources}
            return await context.ask("synthesis/proposals.j2", values, read, label=f"proposals-{number}")

        asked = await ask_together(*(ask(number, group) for number, group in enumerate(groups)))
        grounded: list[GroundedProposal] = []
        refused: list[dict[str, str]] = []
        for proposal in (each for proposals in asked for each in proposals):
            try:
                grounded.append(ground_proposal(proposal, documents, self._settings, self._tools))
            except Refused as fault:
                refused.append({"title": proposal.title, "reason": str(fault.reason), "detail": fault.detail})
        doubles = await self._find_doubles(grounded, earlier, pool, context)
        refused += [
            {"title": grounded[index].title, "reason": str(why), "detail": detail} for index, why, detail in doubles
        ]
        double = {index for index, *_ in doubles}
        kept = [each for index, each in enumerate(grounded) if index not in double]
        context.note(questions=len(groups), proposed=len(grounded) + len(refused) - len(doubles), kept=len(kept))
        rows = [each.model_dump(mode="json") for each in kept]
        return {"kept": rows, "refused": refused, "whole": len(groups) == len(parts)}

    def _choose_groups(self, groups: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
        """Return the parts of the sources for this round: all, or, if they are too many, those after the parts of the last round."""
        most = self._settings.questions
        if len(groups) <= most:
            return groups
        start = (self._number - 1) * most
        return [groups[(start + n) % len(groups)] for n in range(most)]

    async def _find_doubles(
        self, new: list[GroundedProposal], earlier: list[GroundedProposal], pool: list[PoolEntry], context: StageContext
    ) -> list[tuple[int, Reason, str]]:
        """Return (index, reason, detail) of proposals that repeat the pool, an earlier proposal or a better new one."""
        known = {f"{POOL}{each.name}": each.text for each in pool}
        known |= {f"{EARLIER}{index}": each.comparable for index, each in enumerate(earlier)}
        themes = {str(index): each for index, each in enumerate(new)}
        if not themes:
            return []
        texts = [*known.values(), *(each.comparable for each in new)]
        embedded = await context.embed(texts, label="vectors")
        threshold = self._settings.cosine or (LEXICAL_COSINE if embedded is None else EMBEDDING_COSINE)
        vectors = dict(
            zip([*known, *themes], make_lexical_vectors(texts) if embedded is None else embedded, strict=True)
        )
        doubles = await asyncio.to_thread(find_duplicates, themes, vectors, threshold, list(known))
        found = []
        for key, (nearest, cosine) in doubles.items():
            reason = Reason.POOL_HAS_IT if nearest.startswith(POOL) else Reason.DUPLICATE_PROPOSAL
            names = nearest.removeprefix(POOL) if nearest.startswith(POOL) else ""
            what = (
                names
                or (
                    earlier[int(nearest.removeprefix(EARLIER))] if nearest.startswith(EARLIER) else themes[nearest]
                ).title
            )
            found.append((int(key), reason, f"{themes[key].title} repeats {what}, cosine {cosine:.3f}"))
        return found


class Proposals:
    """The proposals that are kept. Key: the environment's name, or ROUND/NUMBER for a refused one."""

    name = "proposals"

    def __init__(self, rounds: int, pool: Callable[[], Sequence[PoolEntry]]) -> None:
        self._rounds, self._pool = rounds, pool

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        taken = {entry.name for entry in self._pool()}
        inputs = []
        for number in range(1, self._rounds + 1):
            for kept in list_kept(outputs, number):
                name = make_unique(kept["name"], taken)
                taken.add(name)
                inputs.append(StageInput(name, {**kept, "name": name}))
            made = outputs.of(f"proposals{number}").get("all", {})
            for index, refused in enumerate(made.get("refused", []), 1):
                inputs.append(StageInput(f"round{number}/{index}", {"refused": refused}))
        return inputs

    async def make(self, given: StageInput, context: StageContext) -> Any:
        if refused := given.value.get("refused"):
            raise Refused(Reason(refused["reason"]), refused["detail"])
        proposal = GroundedProposal.model_validate(given.value)
        context.note(
            adds=proposal.adds,
            quotes=sum(len(each.quotes) for each in proposal.sources),
            tools=[tool.name for tool in proposal.tools],
            refused=explain_refusals(proposal.refused),
        )
        quotes = [f"{each.name}: {quote}" for each in proposal.sources for quote in each.quotes]
        return {**proposal.model_dump(mode="json"), "quotes": quotes}


def list_kept(outputs: StageOutputs, number: int) -> list[dict[str, Any]]:
    """The proposals that a round kept."""
    kept: list[dict[str, Any]] = outputs.of(f"proposals{number}").get("all", {}).get("kept", [])
    return kept
