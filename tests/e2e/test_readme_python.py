"""The Python of the README, run as it is, against a fake endpoint in place of the rented one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.test_readme import code_blocks, write_seeds
from tests.fake_endpoint import FakeEndpoint


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    """Only the address of the endpoint is added."""
    write_seeds(tmp_path)
    (code,) = code_blocks("python")
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    model = '"model": "gpt-5-mini"'
    assert code.count(model) == 1
    (tmp_path / "quickstart.py").write_text(
        code.replace(model, f'{model}, "base_url": "{endpoint.url}", "structured": True'), encoding="utf-8"
    )
    env = os.environ | {"OPENAI_API_KEY": "not-a-key"}
    try:
        done = subprocess.run(
            [sys.executable, "quickstart.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stderr[-2000:]
        first, result, reward = done.stdout.splitlines()
        assert re.fullmatch(r"1000 trajectories in runs/\S+", first)
        assert "ORD-20417" in result
        assert reward in code, "the comment in the README says what is printed"
        assert reward.startswith("1.0 ")
    finally:
        endpoint.stop()
