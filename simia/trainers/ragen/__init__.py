"""RAGEN on simia's packs: GRPO by RAGEN's trainer with simia's environment, context and batched step. RAGEN itself is not patched.

    simia train ragen configs/ragen/tau_simulated.yaml

RAGEN's own classes are made for games: a fixed prompt, forced `<think>…<answer>`, visible rewards, one environment after another, and text
that is tokenised again. This does not fit agents with tools, so these modules replace them:

    start.py          `simia train ragen`, and the script of the run
    settings.py       a tag's settings, refused configurations, the step at which a run resumes
    import_hook.py    registers the classes when a process imports RAGEN; a Ray worker calls `register` first
    env.py            the environment with RAGEN's signatures
    rollout.py        manager and proxy: play all episodes of a step at once, until all have ended
    context.py        token in, token out: prompts from the chat template, rows whose mask is 1 on the sampled ids
    training_rows.py  the rows of a step as plain lists

`rollout` and `context` import RAGEN, so they are imported only in RAGEN's Python environment.
"""

from simia.trainers.ragen.import_hook import register

__all__ = ["register"]
