"""Notes for the user of a simulator export: calls over the cutoff, rows that balancing removed, and why no training row is left."""

from __future__ import annotations

from math import ceil

from simia.exporting.simulator_rows import (
    DISTURBED,
    DIVERGED,
    EVALUATION,
    EXECUTED,
    NOT_EXECUTABLE,
    NOT_OPENED,
    TOO_LONG,
    UNSHOWN,
    CollectedRows,
)
from simia.exporting.simulator_settings import SimulatorConfig
from simia.exporting.simulator_split import (
    BALANCE,
    LEAKS,
    NAMED,
    REFUSED,
    SplitRows,
    count_classes,
    find_class,
    write_class,
)
from simia.terminal import write_count

MANY = 0.25  # share of calls over the cutoff from which on a note says so
ADVICE = {
    UNSHOWN: "show more of the state with --set world.state_tokens=N",
    EVALUATION: "play a pack whose tasks are for training",
    NOT_EXECUTABLE: "play the pack with --set backend=executable",
    DIVERGED: "the pack was changed: play it again",
    NOT_OPENED: "put the pack back where the run found it, or play it again",
    DISTURBED: "play the pack without perturb",
    EXECUTED: "leave out world.compute, or play tasks whose solutions write",
    LEAKS: "hold out less, or play more tasks",
    NAMED: "hold out less, or take rows without a history (world.knowledge: state)",
}
ADVICE_BY_CLASS = {"0": "play more calls that change something", REFUSED: "play more calls that succeed"}


def list_notes(found: CollectedRows, split: SplitRows, config: SimulatorConfig) -> list[str]:
    """Write a line for each setting that leaves out many training rows or unbalances them."""
    notes = []
    if note := describe_long_calls(found, config.cutoff):
        notes.append(f"{note}: try --cutoff {round_up(found)}")
    rows, removed = len(split.train), split.left_out[BALANCE]
    if config.take is None and removed > rows:
        notes.append(
            f"balancing the classes (refusals, |Δ|) leaves out {removed} of {write_count(rows + removed, 'training row')}: --set largest=1 keeps all"
        )
    name, most = max(count_classes(split.train).items(), key=lambda each: each[1])
    if config.largest < 1 and most > config.largest * rows:
        what = "refused calls" if name == REFUSED else f"of {write_class(name)}"
        advice = ADVICE_BY_CLASS.get(name, "play more of the others")
        advice += " or take fewer" if config.take is not None else ""
        notes.append(f"{most} of {rows} training rows are {what}, since there are few others: {advice}")
    if split.lost:
        notes.append(f"--take {config.take} leaves no training row of {', '.join(split.lost)}: take more")
    return notes


def describe_long_calls(found: CollectedRows, cutoff: int) -> str:
    """Say how many calls are over the cutoff, if they are many or all of a class of |Δ|."""
    lengths = found.too_long
    calls = len(found.rows) + len(lengths)
    fitting = {find_class(row.truth.delta) for row in found.rows}
    lost = sorted({find_class(delta) for _, delta in lengths} - fitting)
    if not lengths or not (lost or len(lengths) > MANY * calls):
        return ""
    among = f", among them all with |Δ| {' and '.join(lost)}" if lost and len(lengths) < calls else ""
    return f"{len(lengths) / calls:.0%} of the calls are over the cutoff of {cutoff:,} tokens{among}"


def round_up(found: CollectedRows) -> int:
    """A cutoff that all rows fit into, in hundreds of tokens."""
    return ceil(max(tokens for tokens, _ in found.too_long) / 100) * 100


def explain_no_rows(found: CollectedRows, split: SplitRows) -> str:
    """Why an export has no training row, and what to do."""
    left_out = found.left_out + split.left_out
    held = {use: len(rows) for use, rows in split.held_out.items()}
    reason, number = max(left_out.items(), key=lambda each: each[1], default=("", 0))
    if held and sum(held.values()) >= number:
        use = max(held, key=held.__getitem__)
        advice = f"hold out less (held_out.{use}s), or play more tasks"
    elif reason == TOO_LONG:
        advice = f"try --cutoff {round_up(found)}"
    else:
        advice = ADVICE.get(reason, "play more tasks")
    counts = [f"{count} {why} were left out" for why, count in left_out.items()]
    counts += [f"{write_count(count, 'row')} held out by {use}" for use, count in held.items()]
    return f"no training row of {write_count(found.episodes, 'episode')} ({', '.join(counts) or 'they make no call'}), so nothing was written: {advice}"
