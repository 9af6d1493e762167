"""A strong model's verdicts on the injected episodes: the prompts that it is given, and the recording of its replies.

    python -m tests.envs.rewards.injected_verdicts write FOLDER             old/NN.txt and new/NN.txt, in an order of their own each
    python -m tests.envs.rewards.injected_verdicts collect BATCH MODEL REPLIES
    python -m tests.envs.rewards.injected_verdicts figures

BATCH is old (turns as plain lines) or new (turns quoted). `collect` appends the replies (JSON lines with `id` = NN and `reply`) to the
recording. A row holds the hash of the prompt that it answers, by which its episode is found: a reply to a prompt that has changed
since belongs to none, and makes `calibrate_replies` raise.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from simia.envs.rewards.judge import RewardJudge, combine_votes, parse_verdict
from simia.evaluation.calibration import Calibration, calibrate_judge
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.trajectory import digest
from tests.envs.rewards.injected import PACK, load_episodes
from tests.evaluation.judged import CALLS_ONLY, Structured
from tests.evaluation.spoiling import value
from tests.evaluation.unquoted import UnquotedRewardJudge

RECORDING = Path(__file__).parents[2] / "recordings" / "oracle_injected.jsonl"
BATCHES: dict[str, type[RewardJudge]] = {
    "old": UnquotedRewardJudge,
    "new": RewardJudge,
}  # before transcripts were quoted, and since


@dataclass(frozen=True)
class Prompt:
    """What a judge is asked about one episode. `solved`: the right verdict."""

    episode: str
    request: Request
    solved: bool

    @property
    def hash(self) -> str:
        return digest(self.request.messages)

    @property
    def text(self) -> str:
        return "".join(f"##### {m['role'].upper()} MESSAGE #####\n{m['content']}\n" for m in self.request.messages)


def render_prompts(batch: str) -> list[Prompt]:
    """The prompt of every episode, in the order of the file."""
    pack = Pack.load(PACK)
    oracle = BATCHES[batch](Engine(Structured(), MemoryJournal(), EngineLimits(retries=0)), pack, CALLS_ONLY)
    return [
        Prompt(name, oracle.request(episode, task), value(episode) == 1.0)
        for name, task, episode in load_episodes(pack)
    ]


def shuffle_prompts(batch: str) -> list[Prompt]:
    """The order in which a judge is given the prompts; NN is the place from 1."""
    found = render_prompts(batch)
    random.Random(f"injected {batch}").shuffle(found)
    return found


def calibrate_replies(batch: str) -> Calibration:
    """What the recorded replies say of the episodes; the kind of an episode is its name. Raises `KeyError` for a prompt without a reply."""
    rows = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
    replies = {row["prompt"]: row["reply"] for row in rows if row["batch"] == batch}
    return calibrate_judge(
        [
            (each.episode, float(each.solved), combine_votes([parse_verdict(replies[each.hash])]))
            for each in render_prompts(batch)
        ]
    )


def write(folder: Path) -> None:
    for batch in BATCHES:
        (folder / batch).mkdir(parents=True, exist_ok=True)
        for number, prompt in enumerate(shuffle_prompts(batch), start=1):
            (folder / batch / f"{number:02}.txt").write_bytes(prompt.text.encode())


def collect(batch: str, model: str, replies: Path) -> None:
    hashes = {f"{number:02}": prompt.hash for number, prompt in enumerate(shuffle_prompts(batch), start=1)}
    with RECORDING.open("a", encoding="utf-8") as file:
        for line in replies.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            number, reply = str(row["id"]).zfill(2), row["reply"]
            text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
            kept = {"id": f"{batch}-{number}", "batch": batch, "model": model, "prompt": hashes[number], "reply": text}
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")


def show_figures() -> None:
    for batch in BATCHES:
        found = calibrate_replies(batch)
        print(f"{batch}: {found.judged} judged, {found.errors} unreadable, {found.solved} solved by the rules")
        print(f"  false passes: {sum(found.false_passes.values())} {sorted(found.false_passes)}")
        print(f"  false fails: {sum(found.false_fails.values())} {sorted(found.false_fails)}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder]:
            write(Path(folder))
        case ["collect", batch, model, replies]:
            collect(batch, model, Path(replies))
        case ["figures"]:
            show_figures()
        case _:
            sys.exit(__doc__)
