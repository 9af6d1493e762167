"""Runs and configs of 0.1.0 hold settings that no longer exist: the runs open, resume and are rechecked; what cannot be done is said."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.amplification.recheck import recheck_run
from simia.amplification.session import resume_amplification, start_amplification
from simia.amplification.settings import TURNWISE, AmplifyConfig
from simia.config import load_config, parse_config
from simia.errors import UserError
from simia.jobs import Run
from tests.fake_endpoint import FakeEndpoint


def age(folder: Path, **changes: Any) -> None:
    """Give a run the settings that a run of 0.1.0 holds, in its config and in its identity."""
    path = folder / "config.yaml"
    data = yaml.safe_load(path.read_text())
    path.write_text(
        yaml.safe_dump(
            data | {"turnwise": TURNWISE, "checkers": None, **changes, "reply": {**data["reply"], "mode": "whole"}}
        )
    )
    run = Run.open(folder.parent, str(folder))
    known = run.ledger.meta("identity")
    known |= {"turnwise": TURNWISE, "reply": {**known["reply"], "mode": "whole"}}
    run.ledger.set_meta("identity", known, twice=True)
    run.close()


async def test_run_of_0_1_0_resumes_and_is_rechecked(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    settings = [
        f"llm.base_url={endpoint.url}",
        "llm.model=fake",
        "llm.structured=true",
        "seeds.packs=[customer_service]",
    ]
    try:
        conf = load_config(AmplifyConfig, "amplify/default", [*settings, "n=5"])
        await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
        age(tmp_path / "r")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            more = await resume_amplification("r", runs=tmp_path, changes={"n": 8}, say=lambda _: None)
            assert (more.stop.kind, len(list(more.trajectories()))) == ("complete", 8)
            age(tmp_path / "r")
            assert recheck_run(tmp_path, "r", print)[1]["accepted"] == (8, 8)
        age(tmp_path / "r", suite="tau_retail")
        with pytest.raises(UserError, match="made with a different suite"):
            await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    finally:
        endpoint.stop()


def test_retired_setting_that_was_changed_is_named() -> None:
    with pytest.warns(FutureWarning, match="checkers was removed in simia 0.2.0"):
        parse_config(AmplifyConfig, {"checkers": 2}, where="c.yaml")
    with pytest.warns(FutureWarning, match="turnwise was removed in simia 0.2.0"):
        parse_config(AmplifyConfig, {"turnwise": {"shape": "free"}}, where="c.yaml")


def test_turn_by_turn_replies_are_refused_in_one_line() -> None:
    with pytest.raises(
        UserError, match=r"reply\.mode: turn-by-turn replies were removed in simia 0\.2\.0; leave it out"
    ) as refused:
        load_config(AmplifyConfig, "amplify/default", ["reply.mode=turns"])
    assert "\n" not in str(refused.value)
    assert "mode" not in load_config(AmplifyConfig, "amplify/default", ["reply.mode=whole"]).model_dump()["reply"]
