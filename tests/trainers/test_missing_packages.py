"""Packages that the user's environment lacks are named with the command that installs them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from simia.exporting.openenv_folder import CLIENT, OPENENV

MISSING: Any = None  # in sys.modules: the import fails


def test_gymnasium_that_is_missing_is_one_line_with_its_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "simia.trainers.gymnasium", raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium", MISSING)
    with pytest.raises(ImportError, match=r"needs the package gymnasium: pip install 'gymnasium>=1.0'"):
        importlib.import_module("simia.trainers.gymnasium")


def test_an_exported_client_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openenv", MISSING)
    with pytest.raises(ImportError, match=r"this client needs the package openenv(.core)?: pip install 'openenv"):
        exec(CLIENT.format(task="t", openenv=OPENENV), {"__name__": "client"})
