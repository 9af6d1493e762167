"""A secret that is granted to a pack is in none of its results; other variables are."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia import masking
from tests.key_forms import FORMS, holds
from tests.sandbox.making import ANY, HEAD, TASK, ask, make_pack, opened

TOKEN = "granted-0123456789/abcdefghij"
CODE = (
    HEAD
    + """
import os

class State(BaseModel):
    count: int = 0

class World(Tools[State]):
    State = State

    @read
    def tell(self, name: str) -> dict[str, Any]:
        return {"value": os.environ[name], "n": 1}

    @read
    def say(self, text: str) -> str:
        return text

    @read
    def refuse(self, name: str) -> None:
        raise ToolError("no: " + os.environ[name])
"""
)


@pytest.mark.attack("a pack's code repeats a secret that it was granted, to have it stored", where="sandbox")
async def test_a_granted_secret_is_in_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_secrets", {})
    monkeypatch.setenv("SHOP_API_KEY", TOKEN)
    monkeypatch.setenv("SHOP_REGION", "eu-central-1-a")
    pack = make_pack(tmp_path / "shop", CODE, {"tell": ANY, "say": ANY, "refuse": ANY}, isolation="sandbox")
    async with opened(pack, variables=["SHOP_API_KEY", "SHOP_REGION"]) as backend:
        world = await backend.open(TASK, seed=0)
        told = await ask(world, "tell", name="SHOP_API_KEY")
        assert (told.content, told.data) == ('{"value":"***","n":1}', {"value": "***", "n": 1})
        assert (await ask(world, "tell", name="SHOP_REGION")).data == {"value": "eu-central-1-a", "n": 1}
        refused = await ask(world, "refuse", name="SHOP_API_KEY")
        assert "no: ***" in refused.content
        assert not holds(refused.content + refused.detail, TOKEN)
        for form in ("upper", "percent", "base64", "Basic", "JSON escapes"):
            assert not holds((await ask(world, "say", text=FORMS[form](TOKEN))).content, TOKEN)
        await world.close()
