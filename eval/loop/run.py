"""The whole loop: ten seeds → amplified data → a small model trained on it → held-out tasks played in the executable world → a table.

    python eval/loop/run.py --size small        # an hour and a half or so on two free cores
    python eval/loop/run.py --size full         # the same, larger, on a GPU

Every stage writes a file in WORK and is skipped if that file exists, so a killed run resumes where it was. Arms with the same
number of training steps: `seeds` (the ten alone), `amplified` (simia amplify, a recorded strong model), `reference` (solutions of
executable training tasks played by simia rollout: an upper bound, which needs more than seeds). `base` is not trained. Then GRPO
starts from the amplified checkpoints, in the executable world and in a simulated one. Held-out tasks are played greedily.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import tasks

from simia.errors import UserError
from simia.llm import local_models
from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.venvs import ensure_environment, ensure_packages, make_python_path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARMS = ("seeds", "amplified", "reference")
WORLDS = ("executable", "simulated")
KEY = "LOOP_SIMULATOR_KEY"


@dataclass(frozen=True)
class Size:
    """Size of a run. `rl`: steps of GRPO, of `groups` tasks with `group` episodes each; `rl_seeds`: number of training seeds with GRPO."""

    seeds: int
    steps: int
    batch: int
    train: int
    test: int
    rl: int
    groups: int
    group: int
    rl_seeds: int
    rate: float = 5e-4
    rates: tuple[float, ...] = (2e-4,)
    dev: int = 40


SIZES = {
    "tiny": Size(seeds=1, steps=2, batch=2, train=4, test=4, rl=1, groups=1, group=2, rl_seeds=1, dev=2, rates=(1e-3,)),
    "small": Size(seeds=3, steps=60, batch=4, train=160, test=100, rl=4, groups=4, group=4, rl_seeds=1),
    "full": Size(seeds=5, steps=120, batch=16, train=1000, test=300, rl=60, groups=16, group=8, rl_seeds=5),
}


class Loop:
    """One run in one folder."""

    def __init__(
        self, work: Path, size: Size, *, python: Path | None, model: Path | None, workers: int, worlds: list[str]
    ) -> None:
        self.work, self.size, self.workers, self.worlds = work.resolve(), size, workers, worlds
        self.python = python or ensure_environment("trl", say=print)
        self.model = model or self.work / "model"
        self.given = model is not None
        self.env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [make_python_path(self.python, print), *filter(None, [os.environ.get("LOOP_PATH")])]
            ),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers))),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONWARNINGS": "ignore",
        }

    # -- stages -----------------------------------------------------------------------------------------------------

    def data(self) -> dict[str, Any]:
        """Make the exports for TRL of seeds, amplified and reference trajectories, and the tasks; check that they share nothing."""
        work, size = self.work, self.size
        self.once(work / "runs" / "amplified" / "done", lambda: self.simia(
            "amplify", "-c", HERE / "amplify.yaml", "--name", "amplified",
            "--set", f"llm.path={HERE / 'recording.jsonl'}", "--seeds", HERE / "pack",
        ))  # fmt: skip
        self.export("amplified", "amplified")
        self.export("seeds", HERE / "pack")
        pack = work / "pack"
        counts = {"dev": size.dev, "train": size.train, "test": size.test}
        trained = [work / "data" / name / "data.jsonl" for name in ("seeds", "amplified")]
        self.once(pack / "done", lambda: print(tasks.write(pack, counts, trained)))
        self.once(work / "runs" / "reference" / "done", lambda: self.simia(
            "rollout", pack, "--agent", "reference", "--split", "train", "--name", "reference",
        ))  # fmt: skip
        self.export("reference", "reference")
        return self.apart(pack)

    def apart(self, pack: Path) -> dict[str, Any]:
        """Compare held-out tasks with all training data; they must share nothing."""
        rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_text().splitlines()]
        held = {split: [row for row in rows if row["split"] == split] for split in ("dev", "test")}
        told: dict[str, Any] = {}
        for name in ARMS:
            said = [
                json.dumps(json.loads(line)["messages"][1:]) for line in self.exported(name).read_text().splitlines()
            ]
            for split, kept in held.items():
                entities = tasks.shared((json.dumps([r["initial"], r["script"]]) for r in kept), said)
                first = {json.loads(text)[0]["content"] for text in said} & {row["instruction"] for row in kept}
                told[f"{split} and {name}"] = {
                    "rows": len(said),
                    "entities": sorted(entities),
                    "requests": sorted(first),
                }
        between = tasks.shared(
            (json.dumps(r["initial"]) for r in held["dev"]), (json.dumps(r["initial"]) for r in held["test"])
        )
        told["dev and test"] = {"entities": sorted(between)}
        for pair, found in told.items():
            print(f"shared by {pair}: {len(found['entities'])} entities, {len(found.get('requests', []))} requests")
        if any(found["entities"] or found.get("requests") for found in told.values()):
            raise UserError(f"held-out tasks share entities or requests with the training data: {told}")
        return told

    def prepare(self) -> None:
        if self.given:
            return
        weights = local_models.fetch_model("smollm2-135m")
        reader = ensure_packages("gguf", pip=["gguf==0.19.0"], say=print)
        layer = next((reader.parent.parent / "lib").glob("python*/site-packages"))
        env = {**self.env, "PYTHONPATH": f"{self.env['PYTHONPATH']}{os.pathsep}{layer}"}
        self.once(
            self.model / "config.json", lambda: self.student("prepare", weights, self.model, log="prepare", env=env)
        )

    def learn(self, arm: str, seed: int) -> None:
        """Train on an arm's data from a seed and play the held-out tasks; `base` plays as it is."""
        out = self.result(arm, seed)
        options: list[Any] = ["--seed", seed, "--play", f"test={out}"]
        if arm != "base":
            size = self.size
            options += [
                "--data",
                self.exported(arm),
                "--steps",
                size.steps,
                "--batch",
                size.batch,
                "--rate",
                self.rate(arm),
            ]
        if arm == "amplified" and self.worlds and seed < self.size.rl_seeds:
            options += ["--keep", self.checkpoint(seed)]
            if out.exists() and not self.checkpoint(seed).exists():
                out.unlink()
        self.once(out, lambda: self.student("learn", self.model, self.work / "pack", *options, log=out.stem))

    def tune(self) -> None:
        """Choose each arm's learning rate by its success on dev tasks, which are not test tasks and are worded like training tasks."""
        size, known = self.size, self.work / "rates.json"
        tried = [(arm, rate) for rate in (size.rate, *size.rates) for arm in ARMS]
        paths = {(arm, rate): self.work / "results" / f"dev-{arm}-{rate:g}.json" for arm, rate in tried}

        def one(arm: str, rate: float) -> None:
            out = paths[arm, rate]
            options = ["--data", self.exported(arm), "--steps", size.steps, "--batch", size.batch, "--rate", rate]
            words = ["learn", self.model, self.work / "pack", *options, "--seed", 1000, "--play", f"dev={out}"]
            self.once(out, lambda: self.student(*words, log=out.stem))

        self.at_once([lambda arm=arm, rate=rate: one(arm, rate) for arm, rate in tried])  # type: ignore[misc]
        found = {pair: json.loads(path.read_text())["mean"] for pair, path in paths.items()}
        best = {arm: max((rate for _, rate in tried), key=lambda rate: found[arm, rate]) for arm in ARMS}
        for (arm, rate), mean in found.items():
            print(f"dev tasks: {arm} at {rate:g}: {mean:.3f}{' *' if best[arm] == rate else ''}", flush=True)
        known.write_text(json.dumps(best))

    def rate(self, arm: str) -> float:
        known = self.work / "rates.json"
        return float(json.loads(known.read_text())[arm]) if known.exists() else self.size.rate

    def reinforce(self, world: str, seed: int, simulator: dict[str, Any] | None) -> None:
        """Run GRPO from the amplified checkpoint of that seed. Both worlds have the same reward: all calls of the solution were made."""
        pack, size = self.work / "pack_trace", self.size
        self.once(pack / "done", lambda: traced(self.work / "pack", pack))
        trained, out = self.work / "models" / f"{world}-{seed}", self.result(f"grpo {world}", seed)
        stage: dict[str, Any] = {
            "pack": str(pack), "backend": world, "split": "train", "reward": "rules", "user": "scripted",
            "episode": {"turns": 8, "errors": 3},
        }  # fmt: skip
        if simulator is not None:
            stage |= {
                "llm": simulator,
                "backend_settings": {"knowledge": "state", "stateful": False},
                "limits": {"concurrency": 1},
            }
        written = self.work / "stages" / f"{world}-{seed}.json"
        written.parent.mkdir(exist_ok=True)
        written.write_text(json.dumps(stage, indent=1))
        options = ["--steps", size.rl, "--groups", size.groups, "--group", size.group, "--seed", seed]
        if simulator is not None:
            options += ["--store", self.work / "replies"]
        self.once(trained, lambda: self.run(
            [self.python, HERE / "grpo.py", self.checkpoint(seed), written, trained, *options], f"grpo-{world}-{seed}", self.wide
        ))  # fmt: skip
        self.once(out, lambda: self.student(
            "learn", trained, self.work / "pack", "--play", f"test={out}", log=f"{out.stem}-play"
        ))  # fmt: skip

    @property
    def wide(self) -> dict[str, str]:
        """Environment variables for GRPO: more threads each, since fewer GRPO runs than other trainings run at once."""
        cores = (os.cpu_count() or 1) // min(self.workers, self.size.rl_seeds)
        return {**self.env, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores)))}

    def table(self) -> str:
        """Write the results so far to results.md and results.json, and return the table."""
        results: dict[str, dict[int, dict[str, float]]] = {}
        kinds: dict[str, str] = {}
        for arm in ("base", *ARMS, *(f"grpo {world}" for world in self.worlds)):
            for seed in range(self.size.seeds):
                path = self.result(arm, seed)
                if path.exists():
                    played = json.loads(path.read_text())["tasks"]
                    kinds |= {task: row["kind"] for task, row in played.items()}
                    results.setdefault(arm, {})[seed] = {task: row["reward"] for task, row in played.items()}
        if not results:
            return "no results yet"
        text, told = figures.table(results, kinds)
        (self.work / "results.json").write_text(json.dumps(told, indent=1))
        (self.work / "results.md").write_text(text + "\n")
        return text

    # -- tools ------------------------------------------------------------------------------------------------------

    def run_all(self, *, tune: bool) -> None:
        for folder in ("data", "results", "models", "logs"):
            (self.work / folder).mkdir(parents=True, exist_ok=True)
        shared = self.data()
        (self.work / "apart.json").write_text(json.dumps(shared, indent=1))
        self.prepare()
        if tune and not (self.work / "rates.json").exists():
            if played := [arm for arm in ARMS if self.result(arm, 0).exists()]:
                raise UserError(f"{played[0]} was already played at the given rate: choose another --work for --tune")
            self.tune()
        seeds = range(self.size.seeds)
        jobs: list[Callable[[], None]] = [lambda: self.learn("base", 0)]
        jobs += [lambda arm=arm, seed=seed: self.learn(arm, seed) for seed in seeds for arm in ARMS]  # type: ignore[misc]
        self.at_once(jobs)
        if "executable" in self.worlds:
            self.at_once(
                [lambda seed=seed: self.reinforce("executable", seed, None) for seed in range(self.size.rl_seeds)]
            )  # type: ignore[misc]
        if "simulated" in self.worlds:
            asyncio.run(self.simulated())
        print(self.table())

    async def simulated(self) -> None:
        """Run GRPO with a small local model that simulates the tools; the model is started here, once for all seeds."""
        backend = EmbeddedBackend(EmbeddedSettings(context=8192), say=print)
        await backend.start()
        try:
            assert backend.server is not None
            self.env[KEY] = backend.server.api_key
            simulator = {
                "kind": "openai", "model": backend.model.partition("@")[0], "base_url": backend.server.base_url,
                "key_env": KEY, "structured": True, "reasoning_model": False, "timeout": 1200, "alias": "embedded",
            }  # fmt: skip
            for seed in range(self.size.rl_seeds):
                await asyncio.to_thread(self.reinforce, "simulated", seed, simulator)
        finally:
            await backend.close()

    def at_once(self, jobs: list[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(self.workers) as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
                self.table()

    def export(self, name: str, source: str | Path) -> None:
        self.once(
            self.exported(name), lambda: self.simia("export", source, "--to", "trl", "--out", self.work / "data" / name)
        )

    def exported(self, name: str) -> Path:
        return self.work / "data" / name / "data.jsonl"

    def result(self, arm: str, seed: int) -> Path:
        return self.work / "results" / f"{arm.replace(' ', '-')}-{seed}.json"

    def checkpoint(self, seed: int) -> Path:
        return self.work / "models" / f"amplified-{seed}"

    def once(self, mark: Path, do: Callable[[], object]) -> None:
        """Run a stage unless its file `mark` exists. Stages that write a folder mark their end by an empty file `done` in it."""
        if mark.exists():
            return
        began = time.monotonic()
        print(f"{mark.relative_to(self.work) if mark.is_relative_to(self.work) else mark} …", flush=True)
        do()
        if mark.name == "done":
            mark.touch()
        print(f"{mark.parent.name}/{mark.name}: {time.monotonic() - began:.0f} s", flush=True)

    def simia(self, *words: Any) -> None:
        env = {**os.environ, "SIMIA_RUNS": str(self.work / "runs")}
        self.run([sys.executable, "-m", "simia", *words], f"simia-{words[0]}", env)

    def student(self, *words: Any, log: str, env: dict[str, str] | None = None) -> None:
        self.run([self.python, HERE / "student.py", *words], log, env or self.env)

    def run(self, command: list[Any], log: str, env: dict[str, str]) -> None:
        path = self.work / "logs" / f"{log}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as out:
            done = subprocess.run(
                [str(c) for c in command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        if done.returncode:
            last = [line for line in path.read_text(errors="replace").splitlines() if line.strip()][-1:]
            raise UserError(f"{path.name} ended with {done.returncode}: {last} ({path})")


def traced(pack: Path, out: Path) -> None:
    """Copy the pack with tasks that are rewarded by their calls, since a simulated world has no state to judge."""
    import shutil

    shutil.copytree(pack, out, dirs_exist_ok=True)
    (out / "done").unlink(missing_ok=True)
    rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_text().splitlines()]
    for row in rows:
        # Without `extra`, the reward is highest for making every possible call; GRPO learned this within four steps.
        row["reward"] = {"parts": [{"kind": "trace", "extra": 0.5}]}
    (out / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole loop, from seeds to a better model.")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--work", type=Path, help="folder of everything that is made (default: out/loop-SIZE)")
    parser.add_argument("--python", type=Path, help="interpreter of TRL's environment; built when not given")
    parser.add_argument("--model", type=Path, help="a prepared model in place of SmolLM2-135M-Instruct")
    parser.add_argument("--workers", type=int, default=2 if (os.cpu_count() or 1) < 8 else 1, help="trainings at once")
    parser.add_argument("--worlds", default=",".join(WORLDS), help="worlds of the GRPO at the end; empty: none")
    parser.add_argument("--tune", action="store_true", help="choose each arm's learning rate on dev tasks first")
    given = parser.parse_args()
    work = given.work or Path("out") / f"loop-{given.size}"
    worlds = [world for world in given.worlds.split(",") if world]
    if strange := [world for world in worlds if world not in WORLDS]:
        raise UserError(f"no world {strange[0]!r}; there are: {', '.join(WORLDS)}")
    loop = Loop(work, SIZES[given.size], python=given.python, model=given.model, workers=given.workers, worlds=worlds)
    loop.run_all(tune=given.tune)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"loop: {error}")
