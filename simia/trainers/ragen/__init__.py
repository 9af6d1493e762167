"""RAGEN over simia's packs: GRPO by its own trainer, with an environment, a context and a batched step of ours, and no patch.

    simia train ragen configs/ragen/tau_simulated.yaml

`register` makes RAGEN know us in this process, whenever it is imported; in a Ray run every worker calls it first. What RAGEN's own
classes do for games (a fixed prompt, forced `<think>…<answer>`, visible rewards, one environment after the other, text that is
tokenised again) is wrong for agents with tools; ours take their place:

    env.py       the environment: RAGEN's signatures, one seat; settings.py has its settings, and which task a seed is
    manager.py   all environments step at once; unfinished ones are judged in the last round; resume.py says where it goes on
    proxy.py     the loop over a step's episodes, until all are over
    context.py   ids in, ids out: prompts from the chat template, rows with a mask on what was sampled
    checks.py    which configurations are refused: above all those under which GRPO is not GRPO
    start.py     what `simia train` runs; entry.py is the script that it starts

`manager`, `proxy`, `context` and `entry` import RAGEN, so only its environment imports them.
"""

from simia.trainers.ragen.register import register
from simia.trainers.ragen.start import launch

__all__ = ["launch", "register"]
