"""The schedule of an episode follows from settings, task and seed alone."""

from __future__ import annotations

import pytest

from simia.config import parse_config
from simia.envs.perturbation.settings import TOOL_EVENTS, PerturbSettings, PlannedEvent, plan_events
from simia.errors import UserError

TASKS = [f"task-{n}" for n in range(200)]


def test_the_same_seed_plans_the_same_events_and_another_one_others() -> None:
    settings = PerturbSettings(events=3)
    first = [plan_events(settings, task, 7) for task in TASKS]
    assert first == [plan_events(PerturbSettings(events=3), task, 7) for task in TASKS]
    assert first != [plan_events(settings, task, 8) for task in TASKS]
    assert first != [plan_events(PerturbSettings(events=3, seed=1), task, 7) for task in TASKS]
    assert len({tuple(each.model_dump_json() for each in plan) for plan in first}) > 100


def test_kinds_are_not_repeated_before_all_were_used_and_stand_in_the_first_calls() -> None:
    for task in TASKS:
        planned = plan_events(PerturbSettings(events=len(TOOL_EVENTS), within=2), task, 0)
        assert sorted(each.kind for each in planned) == sorted(TOOL_EVENTS)
        assert {each.at for each in planned} <= {1, 2}
    twice = plan_events(PerturbSettings(kinds=["off_topic"], events=2), "t", 0)
    assert [each.kind for each in twice] == ["off_topic", "off_topic"]


def test_a_share_of_the_tasks_is_disturbed() -> None:
    settings = PerturbSettings(share=0.3)
    disturbed = sum(bool(plan_events(settings, task, 0)) for task in TASKS)
    assert 35 <= disturbed <= 85
    assert not any(plan_events(PerturbSettings(share=0), task, 0) for task in TASKS)


def test_a_schedule_stands_in_place_of_sampled_events() -> None:
    event = PlannedEvent(kind="rate_limit", at=2, tool="get_order")
    assert plan_events(PerturbSettings(schedule=[event]), "t", 0) == [event]
    assert plan_events(PerturbSettings(schedule=[]), "t", 0) == []


def test_dumped_settings_are_read_again() -> None:
    event = PlannedEvent(kind="rate_limit", at=2, tool="get_order")
    for settings in (PerturbSettings(), PerturbSettings(share=0.5, events=2), PerturbSettings(schedule=[event])):
        assert parse_config(PerturbSettings, settings.model_dump(mode="json"), where="perturb") == settings


LIMIT = {"kind": "rate_limit"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kinds": ["earthquake"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"rate": 1}, "rate"),
        ({"events": 0}, "events"),
        ({"schedule": [{"kind": "wrong_id", "tool": "get_order"}]}, "wrong_id disturbs a message of the user"),
        ({"schedule": [LIMIT], "share": 0}, "schedule lists all events, so share would have no effect"),
        ({"schedule": [LIMIT], "kinds": ["rate_limit"], "events": 2}, "so kinds and events would have no effect"),
        ({"schedule": [], "within": 1}, "so within would have no effect"),
    ],
)
def test_unknown_kinds_and_meaningless_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_config(PerturbSettings, settings, where="perturb")
