"""The script of a run, in RAGEN's environment: `python -m simia.trainers.ragen.entry CONFIG.yaml`, with RAGEN_HOME set.

It composes RAGEN's `base` with the file's values, checks the whole, starts Ray with `register` as what every worker does first,
and calls RAGEN's own `train.main`. Nothing of RAGEN is changed on disk.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.terminal import say_error
from simia.trainers.ragen.checks import check_ragen_config
from simia.trainers.ragen.register import register

HOOK = "simia.trainers.ragen.register"
# As RAGEN's own ray.init says, which is not reached when Ray runs already.
WORKERS = {"TOKENIZERS_PARALLELISM": "true", "NCCL_DEBUG": "WARN", "VLLM_LOGGING_LEVEL": "WARN", "RAY_DEBUG": "legacy"}


def compose_config(file: Path, home: Path) -> Any:
    """RAGEN's `base` with the file's values in it; names were checked when the run was prepared."""
    import hydra  # type: ignore[import-not-found,unused-ignore]
    from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]

    with hydra.initialize_config_dir(config_dir=str(home / "config"), version_base=None):
        base = hydra.compose(config_name="base")
    with open_dict(base):
        return OmegaConf.merge(base, OmegaConf.load(file))


def start_ray(config: Any) -> None:
    """As RAGEN starts it for a run on one machine, with our hook. Ray counts the GPUs that are visible when it starts."""
    import ray  # type: ignore[import-not-found,unused-ignore]

    os.environ["CUDA_VISIBLE_DEVICES"] = str(config.system.CUDA_VISIBLE_DEVICES)
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "RAGEN_HOME") if name in os.environ}
    environment = {"env_vars": {**WORKERS, **kept}, "worker_process_setup_hook": HOOK}
    ray.init(num_cpus=config.ray_init.num_cpus, runtime_env=environment)


def main(arguments: list[str]) -> int:
    home = Path(os.environ.get("RAGEN_HOME", ".")).resolve()
    if len(arguments) != 1 or not (home / "train.py").is_file():
        say_error("usage: RAGEN_HOME=<checkout> python -m simia.trainers.ragen.entry CONFIG.yaml")
        return 2
    sys.path.insert(0, str(home))
    register()
    import train  # type: ignore[import-not-found,unused-ignore]

    try:
        config = compose_config(Path(arguments[0]), home)
        check_ragen_config(config)
        start_ray(config)
        train.main(config)
    except UserError as error:
        say_error(f"simia: {format_error(error)}")
        return 1
    return 0


def format_error(error: UserError) -> str:
    """One line. What a worker of Ray's raised is here as its own kind too, with the worker's traceback for words."""
    return str(getattr(error, "cause", None) or error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
