"""Judges: models that say of a seed, or of an accepted trajectory, whether it is good enough to learn from.

`prefilter_llm` judges seeds before a run, `judge_run` what a run has accepted. A verdict is pass, fail or error; an error is
never counted as either.
"""

from simia.quality.judging.agreement import Agreement, Rate
from simia.quality.judging.judgement import Judged, Judgement, load
from simia.quality.judging.panel import Panelist
from simia.quality.judging.prefilter import prefilter_llm, split
from simia.quality.judging.quality import judge_run
from simia.quality.judging.rubric import Rubric
from simia.quality.judging.settings import Judge, JudgeSampling, JudgeSettings, QualitySettings
from simia.quality.judging.verdict import Verdict

__all__ = [
    "Agreement",
    "Judge",
    "JudgeSampling",
    "JudgeSettings",
    "Judged",
    "Judgement",
    "Panelist",
    "QualitySettings",
    "Rate",
    "Rubric",
    "Verdict",
    "judge_run",
    "load",
    "prefilter_llm",
    "split",
]
