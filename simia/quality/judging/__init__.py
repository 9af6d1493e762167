"""Ask models whether a seed or an accepted trajectory is good training data.

`panel.judge_seeds_by_llm` judges seeds before a run, `quality_judge.judge_run` the accepted trajectories of a run. A
verdict is pass, fail or error; an error counts as neither.
"""
