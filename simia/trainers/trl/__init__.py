"""GRPO in TRL over a simia environment.

`rollout` plays whole episodes as TRL's `rollout_func`, `tool_methods` gives TRL's own loop the pack's tools, and `train` is what
`simia train trl` starts.
"""

from simia.trainers.trl.model_sampler import sample_with_model
from simia.trainers.trl.rollout import environment_reward, rollout_func, task_rows

__all__ = ["environment_reward", "rollout_func", "sample_with_model", "task_rows"]
