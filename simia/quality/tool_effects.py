"""Tell look-ups from tools that change something, by a tool's contract, else by the verb in its name.

A tool whose effect is unknown is neither, so a check that must be certain may not rely on it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from simia.tool import ToolSpec

Effect = Literal["look_up", "change", ""]

LOOK_UP_VERBS = (
    "get list find search read look lookup view show check calculate compute count query fetch retrieve describe"
    " browse compare estimate convert validate verify translate scan track summarize analyze detect recommend"
    " suggest generate quote preview think is has"
)
CHANGE_VERBS = (
    "cancel create update modify change delete remove add set send book return exchange move rename reply forward"
    " append replace insert write save submit pay refund apply suspend resume enable disable refuel reset register"
    " schedule reschedule order buy purchase upload post assign close issue edit copy sort make place activate"
    " approve archive charge deactivate enroll extend invite lock process renew reserve subscribe unblock"
    " block unlock unsubscribe upgrade withdraw rebook redeem notify email freeze unfreeze pause enrol swap"
    " downgrade terminate reimburse hold"
)
LOOK_UPS, CHANGES = frozenset(LOOK_UP_VERBS.split()), frozenset(CHANGE_VERBS.split())
LOOK_UP_WORDS = re.compile(r"查询|查找|查看|获取|搜索|检索|列出|读取|计算|查詢|検索|取得|一覧|照会|確認|計算")
CHANGE_WORDS = re.compile(
    r"取消|修改|更新|创建|删除|退货|退款|退换|换货|发送|预订|添加|提交|変更|キャンセル|予約|作成|削除|登録|送信|返品|交換|追加"
)
PEOPLE = frozenset(("human", "humans", "agent", "agents", "person", "operator", "support", "representative", "staff"))
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def find_effect(tool: ToolSpec) -> Effect:
    """Return what a call of the tool does: `look_up`, `change`, or "" if neither its contract nor its name says."""
    if tool.writes is not None:
        return "change" if tool.writes else "look_up"
    return find_effect_by_name(tool.name)


@lru_cache(maxsize=4096)
def find_effect_by_name(name: str) -> Effect:
    """Return the effect of the first known verb in a tool's name."""
    own = name.rpartition(".")[2]  # app.action
    words = split_tool_name(own)
    if "transfer" in words:  # of money: a change; to a person: neither
        return "change" if len(words) > 1 and PEOPLE.isdisjoint(words) else ""
    for word in words:
        if word in LOOK_UPS:
            return "look_up"
        if word in CHANGES:
            return "change"
    if CHANGE_WORDS.search(own):
        return "change"
    return "look_up" if LOOK_UP_WORDS.search(own) else ""


@lru_cache(maxsize=4096)
def split_tool_name(name: str) -> tuple[str, ...]:
    """Split a tool's name into words in lower case: `cancelOrder`, `order.cancel` and `cancel_order` are alike."""
    return tuple(word.lower() for word in WORD.findall(name))
