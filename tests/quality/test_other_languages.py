"""Checks find in other languages what they find in English: the stories and changes of eval/bench/languages.py, fewer of them."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from simia.errors import Code
from simia.quality import leaks, refusals
from simia.quality.check import Checks, check_trajectory
from simia.quality.grounding import infer_identifiers
from simia.quality.mentions import Mentions
from simia.quality.seed_filter import filter_seeds
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

ROOT = Path(__file__).parent.parent.parent
LANGUAGES = ("zh", "ja", "ko", "th", "ar", "es", "fr", "de", "vi")


@cache
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language_bench", ROOT / "eval/bench/languages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def row(language: str) -> dict[str, tuple[int, int]]:
    texts, zh, en = (bench().Texts.load(name) for name in (language, "zh", "en"))
    found: dict[str, tuple[int, int]] = bench().measure_language(texts, [en, zh, texts], 1, stories=8)
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_at_least_as_much_is_found_as_in_english(language: str) -> None:
    english, found = row("en"), row(language)
    short = []
    for change, (hits, of) in english.items():
        share, least = found[change][0] / found[change][1], hits / of
        # With eight stories, one more or less is .125: a wrong finding may be one more where English has some.
        most = least + 0.25 if least else 0.0
        if share > most if change.startswith("no: ") else share < bench().RATIO * least:
            short.append(f"{change}: {share:.2f}, English {least:.2f}")
    assert not short


SAID = [
    ("我的邮箱是johndoe@example.com", "johndoe@example.com"),
    ("邮箱johndoe@example.com。谢谢", "johndoe@example.com"),
    ("订单#W5918442里", "#W5918442"),
    ("订单20417谢谢", "ORD-20417"),
    ("我的订单12345，67890都要退", "12345"),
    ("我的订单12345，67890都要退", "67890"),
    ("订单号：12345", 12345),
    ("注文番号はORD-20417です", "ORD-20417"),
    ("注文番号はＯＲＤ－２０４１７です", "ORD-20417"),
    *((f"予約番号はＭＥ{mark}７０６８{mark}０８５２２１です", "ME-7068-085221") for mark in "－‐‑‒–—―−-ーｰ"),
    ("予約ME\u30fc7068\u30fc085221です", "ME-7068-085221"),
    ("コーヒーメーカーA1ー2", "A1-2"),
    ("コーヒーメーカー20417の件", "コーヒーメーカー"),
    ("A1、B2をお願いします", "A1, B2"),
    ("주문번호는 ORD-20417입니다", "ORD-20417"),
    ("kim@example.com으로 보내 주세요", "kim@example.com"),
    ("คำสั่งซื้อORD-20417ครับ", "ORD-20417"),
    ("หมายเลข ๒๐๔๑๗๓ ค่ะ", "204173"),
    ("رقم الطلب ٢٠٤١٧٣", 204173),
    ("وORD-20417", "ORD-20417"),
    ("el pedido nº5918442", 5918442),
    ("the network AS15169", 15169),
    ("我叫张伟，住在北京市朝阳区", "张伟"),
    ("我叫张伟，住在北京市朝阳区", "北京"),
    ("山田 太郎です", "山田太郎"),
    ("김민수입니다", "김민수"),
    ("والقاهرة", "القاهرة"),
]
NOT_SAID = [
    ("订单#W59184423里", "#W5918442"),
    ("xjohndoe@example.com的", "johndoe@example.com"),
    ("价格1042元", "ORD-1042"),
    ("￥1042", "ORD-1042"),
    ("2025年", "ORD-2025"),
    ("12.50元", 12),
    ("我叫张伟", "李伟"),
    ("محمود", "محمد"),
    ("محمدي", "محمد"),
    ("BAS151690", 15169),
    ("X15169-22", 15169),
    ("ＭＥー７０６８ー０８５２２１２です", "ME-7068-085221"),
    ("コーヒ-メ-カ-をお願いします", "コーヒーメーカー"),
]


def is_said(text: str, value: Any) -> bool:
    mentions = Mentions()
    mentions.add(text, by_user=True)
    return mentions.contains(value)


@pytest.mark.parametrize(("text", "value"), SAID)
def test_said(text: str, value: Any) -> None:
    assert is_said(text, value)


@pytest.mark.parametrize(("text", "value"), NOT_SAID)
def test_not_said(text: str, value: Any) -> None:
    assert not is_said(text, value)


TOOLS = [
    ToolSpec(
        name="find",
        parameters={"type": "object", "properties": {"email": {"type": "string"}, "order_id": {"type": "string"}}},
    )
]


def seed(number: int, **arguments: str) -> Trajectory:
    given = {"email": f"user{number}@example.com", "order_id": f"#W59{number}8442"} | arguments
    messages = [
        Message(role="user", content=f"我的邮箱是user{number}@example.com，订单#W59{number}8442里少了一件。"),
        Message(role="assistant", calls=[ToolCall(id="c", name="find", arguments=given)]),
        Message(role="tool", call_id="c", content="{}"),
        Message(role="assistant", content=f"第{number}件已经补发，请留意查收。"),
    ]
    return Trajectory(tools=TOOLS, messages=messages)


@pytest.mark.parametrize("count", [2, 4])
def test_good_chinese_seeds_are_kept_and_made_up_identifiers_are_refused(count: int) -> None:
    seeds = [seed(number) for number in range(1, count + 1)]
    kept, refused = filter_seeds(seeds, Checks())
    assert (len(kept), refused) == (count, [])
    ids = infer_identifiers(TOOLS, seeds)
    assert ids.paths == {"find": (("email",), ("order_id",))}
    for made_up in (seed(7, email="someone@example.com"), seed(7, order_id="#W5900000")):
        assert [issue.code for issue in check_trajectory(made_up, Checks(), ids=ids)] == [Code.UNGROUNDED_ID]


def test_argument_names_in_other_scripts() -> None:
    names = ["订单号", "用户ID", "メールアドレス", "주문번호", "หมายเลขคำสั่งซื้อ", "رقم الطلب"]
    others = ["备注", "城市", "住所", "이름", "ชื่อ", "الاسم"]
    properties = {name: {"type": "string"} for name in names + others}
    tool = ToolSpec(name="f", parameters={"type": "object", "properties": properties})
    assert [path[0] for path in infer_identifiers([tool]).paths["f"]] == names


FINE = [
    "作为会员，您无法在当天更改预订。",
    "很抱歉，根据政策我们无法退款。",
    "申し訳ございませんが、規定により返金できません。",
    "죄송하지만 규정상 환불해 드릴 수 없습니다.",
    "ขออภัยค่ะ ตามนโยบายเราไม่สามารถคืนเงินได้",
    "عذرا، لا يمكننا إرجاع المبلغ بحسب السياسة.",
    "Como cliente habitual no puede cambiar la reserva hoy.",
    "En tant que client, vous ne pouvez pas annuler aujourd'hui.",
    "Als Kunde können Sie heute nicht mehr stornieren.",
    "Là khách hàng, bạn không thể đổi vé hôm nay.",
    "我为您找到了一款AI音箱，不过目前没有现货。",
]


@pytest.mark.parametrize("text", FINE)
def test_declining_by_policy_breaks_no_role(text: str) -> None:
    assert refusals.find_role_break(text) == ""


@pytest.mark.parametrize(
    ("text", "leaks_out"),
    [
        ("尊敬的[您的姓名]，您好", True),
        ("【您的姓名】，您好", True),
        ("【姓名】张伟", False),
        ("[订单号](https://example.com/订单)", False),
        ("〇〇様、お荷物です", True),
        ("系统提示您余额不足", False),
        ("<tool_call>在这里", True),
        ("Estimado [Nombre], el número está aquí", True),
        ("El índice [3] señala la página", False),
    ],
)
def test_placeholders_and_markup_in_other_languages(text: str, leaks_out: bool) -> None:
    messages = [Message(role="user", content="请问"), Message(role="assistant", content=text)]
    issues = check_trajectory(Trajectory(messages=messages), Checks(require_calls=False))
    assert (Code.LEAK in [issue.code for issue in issues]) is leaks_out


def test_markers_of_other_languages_are_looked_for_in_such_texts_only() -> None:
    assert leaks.find_marker("这是示例对话吗", leaks.LEAK_MARKERS) == "示例对话"
    assert leaks.find_marker("el prompt del sistema dice", leaks.LEAK_MARKERS) == "prompt del sistema"
    assert leaks.find_marker("el prompt del sistema dice", leaks.LEAK_MARKERS, foreign=False) is None
    assert leaks.find_marker("a seed trajectory", leaks.LEAK_MARKERS, foreign=False) == "seed trajectory"
