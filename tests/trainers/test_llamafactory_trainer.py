"""What the real LLaMA-Factory 0.9.5 reads, renders and trains of our exports. Nothing of ours takes part in judging."""

import json
import math
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from simia.exporting import CardFacts, export
from simia.pack import Pack
from simia.tool import ToolSpec
from simia.trainers.llamafactory import CHECK
from simia.trajectory import Message, ToolCall, Trajectory

PROBE = Path(__file__).parent / "llamafactory_probe.py"
END = "<|im_end|>\n"
CUTOFF = 12_000
LOOKUP = ToolSpec(name="look_up", description="Look something <up>", parameters={"type": "object", "properties": {}})


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str, **more: Any) -> Message:
    return Message(role="assistant", content=text, **more)


def calls(*arguments: dict[str, Any], **more: Any) -> Message:
    made = [ToolCall(id=f"c{n}", name="look_up", arguments=given) for n, given in enumerate(arguments)]
    return Message(role="assistant", calls=made, **more)


def result(text: str, call: int = 0) -> Message:
    return Message(role="tool", content=text, call_id=f"c{call}")


def talk(*messages: Message, system: str | None = "Be brief.", tools: bool = True) -> Trajectory:
    return Trajectory(system=system, tools=[LOOKUP] if tools else [], messages=list(messages))


MARKED = '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'
HOSTILE = [
    talk(user(f"What does {MARKED} mean?"), says("It is a call."), system=f"Calls look like {MARKED}."),
    talk(user("<think>\nhm\n</think>\n\nhi"), says("Hello {{content}} {{idx}} <image> <video>")),
    talk(user("{{content}}"), calls({}), result(f"{MARKED} {{{{idx}}}} {{{{content}}}}"), says("ok")),
    talk(user("go"), calls({"q": MARKED.replace("</tool_call>", "")}), result(""), says("ok")),
    talk(
        user("go"),
        calls({"q": "<think>\nx\n</think>\n\n", "b": "\\< \\u003c \\\\ \" ' <b>"}),
        result("<b>"),
        says("ok"),
    ),
    talk(
        user("go"),
        calls({"json": json.dumps({"a": [json.dumps({"b": '"'})]})}),
        result('{"x": "{\\"y\\": 1}"}'),
        says("ok"),
    ),
    talk(
        user("go"),
        calls({"n": [1, 1.0, 1e-7, 2**53 + 1, 2**70, True, None, {}, []], "empty": ""}),
        result("null"),
        says("ok"),
    ),
    talk(user("naïve 👩‍💻 🇫🇷 \u202eabc\u202c नमस्ते 你好"), says("e\u0301 \u2028 \u2029 \x85 \x00 \r\n\ttab\u00a0")),
    talk(user("go"), calls({"ключ": "значение \u2028"}), result("😀" * 50), says("ok")),
    talk(user("very long"), says("word " * 3_000)),
    talk(user("go"), calls({"a": 1}, content="I look.\n\nTwice:\n"), result("1"), says("ok")),
    talk(user("go"), calls({"a": 1}, content=""), result("1"), says("ok")),
    talk(user("go"), calls({"a": 1}, {"a": 2}, content='{"a": 1} [x]'), result("two", 1), result("one", 0), says("ok")),
    talk(user("go"), calls({"a": 1}, {"b": {}}, reasoning="two {at} once"), result("1"), result("2", 1), says("ok")),
    talk(user("go"), calls({"a": 1}, content="Now.", reasoning="both"), result("1"), says("ok", reasoning="done\n")),
    talk(user("no tools"), says("none"), tools=False),
    talk(user("no system text"), calls({"a": 1}), result("1"), says("none"), system=None),
    talk(user("neither"), says("none"), system=None, tools=False),
    talk(user("ends on a call"), calls({"done": True})),
    talk(user(""), says("an empty question")),
]
PARTLY = [
    talk(
        user("a"), says("not this one", train=False), user("b"), calls({}), result("r"), says("nor this", train=False)
    ),
]


def rendered(message: Message, reasoning: bool, thinks_always: bool = False) -> str:
    """What the model is to learn to say at this turn: thinking, words, calls, end of turn."""
    made = [json.dumps({"name": c.name, "arguments": c.arguments}, ensure_ascii=False) for c in message.calls]
    parts = [message.content] if message.content else []
    said = "\n".join([*map(str, parts), *(f"<tool_call>\n{call}\n</tool_call>" for call in made)])
    thought = f"<think>\n{message.reasoning or ''}\n</think>\n\n"
    return (thought if thinks_always or (reasoning and message.reasoning) else "") + said + END


def in_call_order(t: Trajectory) -> list[Message]:
    """The messages, with the results of a parallel call in the order of the calls."""
    messages = list(t.messages)
    for n, message in enumerate(t.messages):
        wanted = [call.id for call in message.calls]
        results = messages[n + 1 : n + 1 + len(wanted)]
        messages[n + 1 : n + 1 + len(wanted)] = sorted(results, key=lambda m: wanted.index(str(m.call_id)))
    return messages


def chat(t: Trajectory, upto: int, reasoning: bool) -> list[dict[str, Any]]:
    """The messages for a Hugging Face chat template, which knows no thinking: such a turn is given as it is written."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": t.system}] if t.system else []
    for message in in_call_order(t)[: upto + 1]:
        row: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.role == "assistant" and reasoning and message.reasoning:
            row["content"] = rendered(message, reasoning).removesuffix(END)
        elif message.role == "assistant":
            row["tool_calls"] = [{"function": {"name": c.name, "arguments": c.arguments}} for c in message.calls]
        messages.append(row)
    return messages


def expected(seeds: list[Trajectory], segment: str, reasoning: bool, template: str) -> list[dict[str, Any]]:
    rows = []
    thinks_always = reasoning and template == "qwen3"  # a turn without thinking gets an empty block
    for t in seeds:
        tools = [{"type": "function", "function": tool.flat()} for tool in t.tools] or None
        agents = [n for n, m in enumerate(t.messages) if m.role == "assistant"]
        if segment == "whole":
            plans = [(agents[-1], agents)]
        else:
            plans = [(n, [n]) for n in agents if t.messages[n].train is not False]
        for upto, trained in plans:
            texts = [rendered(t.messages[n], reasoning, thinks_always) for n in trained]
            plain = [said(m, reasoning) for m in in_call_order(t)[: upto + 1]]
            told = chat(t, upto, reasoning)
            rows.append({"messages": told, "system": t.system or "", "tools": tools, "trained": texts, "said": plain})
    return rows


CASES = {
    f"{name}-{segment}-{'reasoning' if reasoning else 'plain'}-{template}": (name, segment, reasoning, template)
    for name in ("office", "customer_service", "hostile")
    for segment in ("whole", "turns")
    for reasoning in (False, True)
    for template in ("qwen",)
} | {
    "partly": ("partly", "turns", False, "qwen"),
    "qwen3": ("office", "whole", False, "qwen3"),
    "qwen3-whole-reasoning": ("office", "whole", True, "qwen3"),
    "qwen3-turns-reasoning": ("office", "turns", True, "qwen3"),
}
# The office as it once was: some of its turns hold reasoning, and it is short, which a CPU is glad of.
THEN = Path(__file__).parents[1] / "recordings/seeds/office"
SETS = {"hostile": HOSTILE, "partly": PARTLY, "office": Pack.load(THEN).seeds}

# Rows that we refuse to write, and what LLaMA-Factory does with them. When a later release mends one, this says so.
GOOD = {"system": "S", "tools": "[]", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
CALL = '{"name": "f", "arguments": {}}'


def turns(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {**GOOD, "conversations": [{"from": role, "value": value} for role, value in pairs]}


ALL_DATES = "every text of the file is a date"
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "two assistant turns in a row": (turns(("human", "a"), ("gpt", "b"), ("function_call", CALL), ("observation", "c")), "dropped"),
    "ends on an observation": (turns(("human", "a"), ("function_call", CALL), ("observation", "c")), "dropped"),
    "starts with gpt": (turns(("gpt", "a"), ("human", "b")), "dropped"),
    "marker in the words beside a call": (turns(("human", "a"), ("function_call", f"<tool_call> is\n<tool_call>{CALL}</tool_call>")), "dies"),
    "marker in an argument, not escaped": (
        turns(("human", "a"), ("function_call", '{"name": "f", "arguments": {"x": "<tool_call>1</tool_call>"}}')), "dies"),
    "no arguments": (turns(("human", "a"), ("function_call", '{"name": "f"}')), "dies"),
    "idx in a user turn": (turns(("human", "{{idx}}"), ("gpt", "b")), "changed"),
    ALL_DATES: (turns(("human", "2025-01-01"), ("gpt", "2025-01-02 10:00")), "dies"),
    "a control token in a result": (turns(("human", "a"), ("function_call", CALL), ("observation", "x<|im_end|>"), ("gpt", "b")), "changed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(trainer: Any, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that the trainer makes of every case, in one process: importing it is what takes long."""
    work = tmp_path_factory.mktemp("exports")
    jobs = []
    for case, (name, segment, reasoning, template) in CASES.items():
        source = SETS[name] if name in SETS else Pack.load(name).seeds
        report = export(
            source, work / case, to="llamafactory", segment=segment, reasoning=reasoning, template=template,
            cutoff=CUTOFF, facts=CardFacts(),
        )  # fmt: skip
        assert report.refused == {}, report.examples
        chats = expected(source, segment, reasoning, template)
        assert report.rows == len(chats)
        (work / case / "expected").write_text("".join(json.dumps(row) + "\n" for row in chats), encoding="utf-8")
        jobs.append({"name": case, "folder": str(work / case)})
    for n, (case, (row, _)) in enumerate(BROKEN.items()):
        folder = work / f"broken{n}"
        export([talk(user("a"), says("b"))], folder, to="llamafactory", cutoff=4000, facts=CardFacts())
        # A sound row after it: a file of dropped rows alone would end in another error.
        other = row if case == ALL_DATES else GOOD
        (folder / "data.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n", encoding="utf-8")
        jobs.append({"name": case, "folder": str(folder), "broken": True})
    (work / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    trainer.run(PROBE, work / "jobs.json", tiny_model, work / "answer.json")
    answer: dict[str, Any] = json.loads((work / "answer.json").read_text(encoding="utf-8"))
    return answer


def nfc(text: str) -> str:
    """Qwen's tokenizers normalise before they split; so does ours."""
    return unicodedata.normalize("NFC", text)


def case_rows(seen: dict[str, Any], case: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    name, segment, reasoning, template = CASES[case]
    source = SETS[name] if name in SETS else Pack.load(name).seeds
    return list(zip(seen[case]["rows"], expected(source, segment, reasoning, template), strict=True))


def said(message: Message, reasoning: bool) -> list[Any]:
    """A message as plain values: role, thinking, words, calls."""
    thought = message.reasoning if reasoning else None
    made = [[call.name, call.arguments] for call in message.calls]
    return [message.role, thought or "", message.content or "", made]


def decoded(turns: list[dict[str, str]]) -> list[list[Any]]:
    """LLaMA-Factory's aligned turns as such values again."""
    messages: list[list[Any]] = []
    for turn in turns:
        role, value = turn["role"], turn["content"]
        if role == "user":
            messages.append(["user", "", value, []])
        elif role == "observation":
            messages += [["tool", "", one, []] for one in value.split("\n</tool_response>\n<tool_response>\n")]
        else:
            thought = ""
            if value.startswith("<think>\n"):
                thought, _, value = value.removeprefix("<think>\n").partition("\n</think>\n\n")
            words, made = value, None
            if role == "function":
                words, mark, rest = value.rpartition("\n<tool_call>")
                made = json.loads(rest.removesuffix("</tool_call>") if mark else value)
            listed = [made] if isinstance(made, dict) else made or []
            messages.append(["assistant", thought, words, [[call["name"], call["arguments"]] for call in listed]])
    return messages


@pytest.mark.parametrize("case", CASES)
def test_every_row_arrives_whole(seen: dict[str, Any], case: str) -> None:
    for got, want in case_rows(seen, case):
        assert got["system"] == want["system"]
        assert json.loads(got["tools"] or "[]") == [tool["function"] for tool in want["tools"] or []]
        assert decoded(got["turns"]) == want["said"]


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_assistant_tokens_are_trained(seen: dict[str, Any], case: str) -> None:
    for got, want in case_rows(seen, case):
        assert got["trained"] == [nfc(text) for text in want["trained"]]
        assert got["trained_as_written"]


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("qwen3-")])  # those add thinking blocks
def test_a_row_has_the_tokens_of_the_chat_template(seen: dict[str, Any], case: str) -> None:
    for got, _ in case_rows(seen, case):
        assert got["as_chat_template"], got["text"]


@pytest.mark.parametrize("case", CASES)
def test_packing_loses_nothing(seen: dict[str, Any], case: str) -> None:
    assert seen[case]["trained_tokens_packed"] == seen[case]["trained_tokens"] > 0


@pytest.mark.parametrize("name", ["office", "customer_service"])
@pytest.mark.parametrize("kind", ["plain-qwen", "reasoning-qwen"])
def test_segmenting_trains_each_assistant_turn_once(seen: dict[str, Any], name: str, kind: str) -> None:
    whole = [text for row in seen[f"{name}-whole-{kind}"]["rows"] for text in row["trained"]]
    segmented = [text for row in seen[f"{name}-turns-{kind}"]["rows"] for text in row["trained"]]
    assert segmented == whole
    assert all(len(row["trained"]) == 1 for row in seen[f"{name}-turns-{kind}"]["rows"])
    assert seen[f"{name}-turns-{kind}"]["trained_tokens"] == seen[f"{name}-whole-{kind}"]["trained_tokens"]


@pytest.mark.parametrize("case", BROKEN)
def test_what_we_refuse_would_have_been_broken(seen: dict[str, Any], case: str) -> None:
    assert seen[case]["fate"] == BROKEN[case][1]


def test_a_counted_length_is_never_below_the_trainers(
    trainer: Any, tiny_model: Path, seen: dict[str, Any], tmp_path: Path
) -> None:
    """Given the model's tokenizer as `count`, the longest row fits its reported length and is close to it."""
    seeds = SETS["office"]
    texts = {part for t in seeds for part in counted_parts(t)}
    (tmp_path / "texts.json").write_text(json.dumps(sorted(texts)), encoding="utf-8")
    script = (
        "import json, sys; from transformers import AutoTokenizer as A; t = A.from_pretrained(sys.argv[1]);"
        "print(json.dumps({x: len(t.encode(x)) for x in json.load(open(sys.argv[2]))}))"
    )
    lengths = json.loads(trainer.run("-c", script, tiny_model, tmp_path / "texts.json").splitlines()[-1])
    report = export(
        seeds, tmp_path / "out", to="llamafactory", segment="whole", facts=CardFacts(), count=lengths.__getitem__
    )
    truth = max(row["tokens"] for row in seen["office-whole-plain-qwen"]["rows"])
    assert truth <= report.longest <= truth * 1.15
    assert report.counted


def counted_parts(t: Trajectory) -> set[str]:
    asked: set[str] = set()

    def note(text: str) -> int:
        asked.add(text)
        return 0

    from simia.exporting.llamafactory_rows import LLaMAFactoryWriter

    list(LLaMAFactoryWriter("whole", False, "qwen", 12000, note).rows(t))
    return asked


@pytest.mark.parametrize("segment", ["whole", pytest.param("turns", marks=pytest.mark.all)])
def test_five_real_steps(trainer: Any, tiny_model: Path, tmp_path: Path, segment: Any) -> None:
    # Attention on a CPU costs the square of the length: policies and all but one tool are left out.
    seeds = [*SETS["office"], *Pack.load("customer_service").seeds]
    short = [t.model_copy(update={"system": "Be brief.", "tools": t.tools[:1]}) for t in seeds]
    export(short, tmp_path, to="llamafactory", segment=segment, reasoning=True, cutoff=2000, facts=CardFacts())
    overrides = {
        "model_name_or_path": tiny_model,
        "deepspeed": "null",
        "flash_attn": "disabled",
        "bf16": "false",
        "use_cpu": "true",
        "preprocessing_num_workers": "1",
        "dataloader_num_workers": "0",
        "learning_rate": "0.001",  # the paper's moves less in five steps than two batches differ
        "max_steps": "5",
        "logging_steps": "1",
        "save_steps": "5",
    }
    given = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "simia", "train", "llamafactory", str(tmp_path), *given]
    done = subprocess.run(command, env=trainer.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"({trainer.python})" in done.stdout, "its own environment was chosen"
    log = [json.loads(line) for line in (tmp_path / "checkpoints" / "trainer_log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert len(losses) == 5
    assert all(math.isfinite(loss) and loss > 0 for loss in losses)
    assert losses[-1] < losses[0]
    assert (tmp_path / "checkpoints" / "checkpoint-5" / "model.safetensors").stat().st_size > 1_000_000


REFUSED = {
    "learning_rat=1e-5": "LLaMA-Factory has no argument learning_rat; did you mean learning_rate?",
    "zzz=1": "LLaMA-Factory has no argument zzz",
    "num_train_epochs=three": "num_train_epochs is 'three': LLaMA-Factory takes a number",
    'learning_rate="5e-6"': "learning_rate is '5e-6': LLaMA-Factory takes a number; write it without quotes",
    "learning_rate=null": "learning_rate is None: LLaMA-Factory takes a number",
    "max_steps=1e3": "max_steps is 1000.0: LLaMA-Factory takes a whole number",
    "seed=true": "seed is True: LLaMA-Factory takes a whole number",
    "bf16=perhaps": "bf16 is 'perhaps': LLaMA-Factory takes true or false",
    "save_strategy=no": "YAML reads no as False: write it in quotes",
    "optim=adamw": "did you mean adamw_torch?",
    "stage=sf": "stage is 'sf': LLaMA-Factory takes one of pt, sft, rm, ppo, dpo, kto; did you mean sft?",
    "resume_from_checkpoint=nowhere": "resume_from_checkpoint: there is no folder nowhere",
    "model_name_or_path=null": "LLaMA-Factory refuses: Please provide `model_name_or_path`.",
    "do_eval=true": "LLaMA-Factory refuses: Please make sure eval_dataset be provided or val_size >1e-6",
    "report_to=wandb": "report_to: wandb is not installed in ",
    "report_to=[none,mlflow]": "report_to: mlflow is not installed in ",
    "enable_liger_kernel=true": "LLaMA-Factory refuses: ",  # is not installed there
}
TAKEN = ["learning_rate=5e-6", "bf16=yes", "dataset=[simia]", "finetuning_type=lora", 'save_strategy="no"', "max_steps=3", "resume_from_checkpoint=."]  # fmt: skip
MANY = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("check", sys.argv[1])
check = importlib.util.module_from_spec(spec); spec.loader.exec_module(check)
said = []
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["check", "train.yaml", *arguments]
    said.append(check.main())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked") / "exported"
    export(SETS["office"][:2], folder, to="llamafactory", facts=CardFacts())
    return folder


def test_arguments_as_llamafactory_takes_them(trainer: Any, exported: Path) -> None:
    """Its own classes are asked, of the file as it is exported (bf16, DeepSpeed and all) with one change each."""
    before = sorted(exported.iterdir())
    asked = [[], *([one] for one in REFUSED), *([one] for one in TAKEN)]
    said = json.loads(trainer.run("-I", "-c", MANY, CHECK, json.dumps(asked), cwd=exported).splitlines()[-1])
    assert said[0] is None, "what we export"
    for given, answer in zip(REFUSED, said[1:], strict=False):
        assert answer is not None, given
        assert REFUSED[given] in answer
        assert "\n" not in answer
    assert said[1 + len(REFUSED) :] == [None] * len(TAKEN)
    assert sorted(exported.iterdir()) == before, "nothing is written"


@pytest.mark.parametrize("dry", [True, False])
def test_a_misspelt_argument_is_one_line_before_anything_is_loaded(trainer: Any, exported: Path, dry: bool) -> None:
    command = [sys.executable, "-m", "simia", "train", "llamafactory", str(exported), "--set", "deepspeed=null"]
    command += ["--set", "learning_rat=1e-5", *(["--dry-run"] if dry else [])]
    done = subprocess.run(command, env=trainer.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "simia: LLaMA-Factory has no argument learning_rat; did you mean learning_rate?\n"


def test_a_named_run_is_asked_before_its_data_are_exported(trainer: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simia", "train", "llamafactory", "simia-joint", "--model", "qwen3-8b", "--set"]
    command += [f"data={Pack.load('office').root}", "--set", "deepspeed=null", "--set"]
    for setting, code in (("num_train_epochs=three", 2), ("num_train_epochs=3", 0)):
        done = subprocess.run(
            [*command, setting, "--dry-run"], cwd=tmp_path, env=trainer.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert ("num_train_epochs is 'three'" in done.stderr) is (code == 2)
        assert list(tmp_path.iterdir()) == []
