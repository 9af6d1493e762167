"""Ask models whether a seed, or an accepted trajectory, is good enough to learn from.

`prefilter.prefilter_llm` judges seeds before a run, `quality.judge_run` the accepted trajectories of a run. A verdict is pass,
fail or error; an error counts as neither.
"""
