"""Find leaks: turns that contain the format's markup, words of the prompt or an unfilled placeholder.

One search over all texts is enough for nearly every trajectory; the turns are searched one by one only after a match.
Tool results may quote anything except the markup of chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from simia.errors import Code, Issue
from simia.quality.language import is_surely_english
from simia.quality.mentions import continues
from simia.quality.trajectory_view import TrajectoryView

# Markup that ends or starts a turn when a trainer renders it: wrong in any text, also a result's.
TEMPLATE_MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|assistant|>")
# Words of a prompt and of a model's self-description in other languages. They cost English texts nothing:
# they are looked for only in conversations with letters beyond ASCII and without the frequent words of English.
OTHER_LANGUAGES = (
    *(
        "示例对话",
        "示例對話",
        "示例轨迹",
        "种子轨迹",
        "种子对话",
        "长度相似的新对话",
        "ai语言模型",
        "大语言模型",
        "我的系统提示",
        "系统提示词",
    ),
    *("サンプル会話", "会話例と", "シード軌跡", "システムプロンプト", "ai言語モデルとして", "大規模言語モデルとして"),
    *("예시 대화", "시드 궤적", "시스템 프롬프트", "ai 언어 모델", "대규모 언어 모델"),
    *("บทสนทนาตัวอย่าง", "พรอมต์ระบบ", "ในฐานะโมเดลภาษา", "ในฐานะแบบจำลองภาษา"),
    *("المحادثة النموذجية", "محادثة المثال", "موجه النظام", "تعليمات النظام الخاصة بي", "كنموذج لغوي", "بصفتي نموذج"),
    *(
        "conversación de ejemplo",
        "trayectoria semilla",
        "como modelo de lenguaje",
        "prompt del sistema",
        "prompt de sistema",
    ),
    *("conversation d'exemple", "conversation d’exemple", "en tant que modèle de langage", "prompt système"),
    *("beispielgespräch", "beispielkonversation", "als ki-sprachmodell", "systemprompt", "system-prompt"),
    *("conversa de exemplo", "como modelo de linguagem", "prompt do sistema"),
    *("cuộc trò chuyện mẫu", "hội thoại mẫu", "là một mô hình ngôn ngữ", "prompt hệ thống"),
)
LEAK_MARKERS = (
    *TEMPLATE_MARKERS,
    *("<tool_call", "</tool_call", "<tool_response", "</tool_response", "<function=", "<function_call"),
    *("<user>", "</user>", "<assistant>", "</assistant>", "<tool>", "</tool>", "<think>", "</think>"),
    *("[inst]", "[/inst]", "<<sys>>", "```tool_call"),
    *(
        "seed trajectory",
        "exemplar",
        "example trajectory",
        "example conversation",
        "new conversation of similar length",
    ),
    *("simulated tool", "simulated result", "play every side", "form of your reply", "training data for an assistant"),
    *("as an ai language model", "as a large language model", "my system prompt", "the system prompt says"),
    *("lorem ipsum", "example_value", "your_email", "your-email@", "insert_here"),
    *OTHER_LANGUAGES,
)
# <order_id>, <ORDER ID>, <your name>; [Your Name], [order id]; {{customer}}. Neither HTML nor an index nor a link.
PLACEHOLDER = re.compile(
    r"(?<![\w>])<(?:[a-z]+(?:_[a-z]+)+|[A-Z]+(?:[_ ][A-Z]+)*|(?:your|insert|customer|order|product|first|last|full)"
    r"[ -][A-Za-z ]{1,30})>"
    r"|(?<!\w)\[(?:(?:[Yy]our|YOUR|[Ii]nsert|INSERT|[Ee]nter|[Cc]ustomer|[Uu]ser|[Rr]ecipient|[Aa]gent|[Cc]ompany|"
    r"[Ff]irst|[Ll]ast|[Ff]ull|[Oo]rder|[Pp]roduct|[Tt]racking|[Pp]hone|[Ee]mail)[ _'’][A-Za-z '’_]{1,30}|"
    r"[Nn]ame|NAME|[Dd]ate|[Ee]mail|[Aa]ddress|[Pp]laceholder|PLACEHOLDER)\](?![(\[])"
    r"|\{\{\s*[A-Za-z_][\w. ]{0,40}\}\}"
)


# All that PLACEHOLDER finds and a little more, in lower case.
MAYBE_PLACEHOLDER = re.compile(r"<[a-z]+[a-z_ -]*>|\[[a-z][a-z '’_]*\]|\{\{")
# [姓名], <您的姓名>, 【您的姓名】, 〇〇様; [이름]; [ชื่อ]; [اسمك]; [Tu nombre], [Nom], [Ihr Name]. Not a link, nor a heading such as 【姓名】.
OPEN, CLOSE = r"[\[<［＜〔]", r"[\]>］＞〕](?![(\[])"
PLACEHOLDER_WORDS = (
    r"(?:请|請)?(?:输入|輸入|填写|填寫|插入)[^\]>]{1,12}",
    r"(?:(?:你|您|用户|用戶|客户|客戶|顾客|公司|收件人|联系人|用户的|客户的|你的|您的)?的?(?:姓名|名字|名称|名稱|日期|地址|邮箱|郵箱|邮箱地址|电子邮件|电话|電話|电话号码|手机号|手机号码|订单号|訂單號|订单编号))",
    r"(?:(?:あなた|お客様|顧客|会社|ユーザー)の?)?(?:お?名前|氏名|ご?住所|日付|電話番号|メールアドレス|ご?注文番号|会社名)",
    r"(?:(?:귀하|고객님?|당신|사용자)의? ?)?(?:이름|성함|성명|날짜|주소|이메일(?: 주소)?|전화 ?번호|주문 ?번호|회사명|고객명)",
    r"(?:ชื่อ|อีเมล|ที่อยู่|วันที่|หมายเลข|เบอร์)[^\]>]{0,25}",
    r"(?:اسم|رقم|عنوان|بريد|تاريخ|الاسم|الرقم|العنوان|البريد|التاريخ)[^\]>]{0,25}",
    r"(?:tu|su|nombre|apellidos?|insert[ae]\w*|ingres[ae]\w*|número|fecha|dirección|correo)\b[^\]>]{0,25}",
    r"(?:votre|ton|nom|prénom|insér\w+|numéro|date|adresse)\b[^\]>]{0,25}",
    r"(?:ihr|ihre|ihren|dein|deine|vorname|nachname|datum|bestellnummer|kundenname|kundennummer)\b[^\]>]{0,25}",
    r"(?:seu|sua|nome|insira|endereço)\b[^\]>]{0,25}",
    r"(?:tên|họ tên|họ và tên|số điện thoại|số đơn|mã đơn|địa chỉ|ngày)\b[^\]>]{0,25}",
)
OTHER_PLACEHOLDER = re.compile(
    rf"{OPEN}\s?(?:{'|'.join(PLACEHOLDER_WORDS)})\s?{CLOSE}|【(?:你|您)的[^】]{{1,12}}】|[〇○◯]{{2}}(?:様|さん|さま)",
    re.I,
)
# A call as a small model writes it in its text (seen in recordings/small-tagged).
WRITTEN_CALL = re.compile(r'[\s>`*:#-]*\{\s*"name"\s*:\s*"[^"]+"\s*,\s*"(arguments|parameters)"\s*:')


def find_leaks(view: TrajectoryView, markers: Sequence[str]) -> Iterator[Issue]:
    """Report each call that is written as text, and for each other leak the turn with its first marker or placeholder."""
    t = view.t
    if '"name"' in view.style:
        for i, (message, text) in enumerate(zip(t.messages, view.texts, strict=True)):
            if message.role == "assistant" and WRITTEN_CALL.match(text):
                yield Issue(code=Code.LEAK, where=f"messages[{i}]", detail="a call stands there as text")
    style = view.style
    foreign = not style.isascii() and not is_surely_english(style[-600:], every=300)  # arguments of calls have none
    others = foreign and OTHER_PLACEHOLDER.search(style) is not None
    if (
        not others
        and not find_marker(style, markers, foreign=foreign)
        and not find_placeholder(style, MAYBE_PLACEHOLDER)
    ):
        return
    for i, (message, text) in enumerate(zip(t.messages, view.texts, strict=True)):
        if message.role == "tool":
            found = find_marker(view.lows[i], TEMPLATE_MARKERS)
        elif message.role != "system":
            whole = "\n".join([text, message.reasoning or "", *(given.decode() for given in view.arguments[i])])
            found = find_marker(whole.lower(), markers, foreign=foreign) or find_placeholder(whole)
            if not found and others and (placeholder := OTHER_PLACEHOLDER.search(whole)):
                found = placeholder[0]
        else:
            found = None
        if found:
            yield Issue(code=Code.LEAK, where=f"messages[{i}]", detail=f"it shows {found[:60]!r}")


def contains_words(marker: str, text: str) -> bool:
    """Return whether the marker occurs as whole words: "exemplary" contains no "exemplar"."""
    at = text.find(marker)
    while at >= 0:
        end = at + len(marker)
        starts = at == 0 or not joins(marker[0], text[at - 1])
        if starts and not joins(marker[-1], text[end : end + 1]):
            return True
        at = text.find(marker, at + 1)
    return False


def joins(edge: str, neighbour: str) -> bool:
    """Return whether two characters belong to one word. In scripts without spaces, no two do."""
    return edge.isalnum() and neighbour.isalnum() and continues(edge, neighbour)


def find_marker(low: str, markers: Sequence[str], *, foreign: bool = True) -> str | None:
    """Return the first marker in a lower-case text. `foreign`: also search for the markers of languages other than English."""
    for first, group in group_markers(tuple(markers)):
        if (first == OTHER and not foreign) or (first in BRACKETS and first not in low):
            continue  # half of the markers are markup: skip them if the text has no such bracket
        for word, marker in group:
            if word in low and contains_words(word, low):
                return marker
    return None


BRACKETS, OTHER = ("<", "["), "other"


@cache
def group_markers(markers: tuple[str, ...]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Group markers by their first bracket ("" for none) or as of another language: [(group, [(in lower case, as given)])]."""
    groups: dict[str, list[tuple[str, str]]] = {"<": [], "[": [], "": [], OTHER: []}
    for marker in markers:
        group = OTHER if marker in OTHER_LANGUAGES else marker[:1] if marker[:1] in BRACKETS else ""
        groups[group].append((marker.lower(), marker))
    return list(groups.items())


def find_placeholder(text: str, pattern: re.Pattern[str] = PLACEHOLDER) -> str | None:
    """Return the first placeholder. Only brackets are tried: matching at every character would be slow."""
    for bracket in ("<", "[", "{{"):
        at = text.find(bracket)
        while at >= 0:
            if found := pattern.match(text, at):
                return found[0]
            at = text.find(bracket, at + 1)
    return None
