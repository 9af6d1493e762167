"""RAGEN over simia's packs: GRPO by its own trainer, with simia's environment, context and batched step, and no patch.

    simia train ragen configs/ragen/tau_simulated.yaml

What RAGEN's own classes do for games (a fixed prompt, forced `<think>…<answer>`, visible rewards, one environment after the other,
text that is tokenised again) is wrong for agents with tools; these modules replace them:

    start.py          `simia train ragen`, and the script of the run
    settings.py       a tag's settings, refused configurations, the step that a run resumes at
    import_hook.py    registers the classes in every process, whenever RAGEN is imported; a Ray worker calls `register` first
    env.py            the environment with RAGEN's signatures
    rollout.py        manager and proxy: all episodes of a step at once, until all have ended
    context.py        ids in, ids out: prompts from the chat template, rows with a mask on the sampled ids
    training_rows.py  the rows of a step as plain lists

`rollout` and `context` import RAGEN, so only its environment imports them.
"""

from simia.trainers.ragen.import_hook import register

__all__ = ["register"]
