"""Phrases with which an assistant breaks its role ("as an AI, I cannot") or declines a request, in twelve languages.

A role break ("I can't: I'm a program") is a fault of the trajectory; "I can't, because the policy forbids it" is none. Declining
is counted in the report and is no fault. Only a text with a word for a machine is searched for a role break.
"""

from __future__ import annotations

import re
import unicodedata

from simia.quality.language import is_surely_english

ENGLISH_ROLE_BREAK = re.compile(
    r"\b(?:as an? (?:ai|artificial intelligence|language model|large language model)\b[^.!?]{0,80}?|"
    r"i(?:['’]?m| am) (?:just |only |merely )?an? (?:ai|artificial intelligence|(?:large )?language model|text-based)\b"
    r"[^!?]{0,120}?)\b(?:can['’]?t|cannot|can not|unable|not able|don['’]?t|do not|not capable|incapable|won['’]?t)\b",
    re.I,
)
ENGLISH_MACHINES = ("ai", "artificial", "language model", "text-based")  # every ENGLISH_ROLE_BREAK contains one

# For each language: what introduces the machine, the machine, and the inability; between them no sentence ends.
ROLE_BREAKS = {
    "zh": (
        r"(?:作为|作為|身为|身為|我(?:只|仅仅|僅僅)?是)(?:一[个個款名位])?[^。！？，]{0,6}",
        r"(?:AI|人工智[能慧]|(?:大?语言|大語言|語言)模型|大模型|机器人|機器人|聊天机器人)",
        r"(?:无法|無法|不能|没有办法|沒有辦法|没办法|没有能力|沒有能力|不具备|不具備|做不到|没有(?:权限|訪問))",
    ),
    "ja": (
        r"",
        r"(?:AI|人工知能|(?:大規模)?言語モデル|チャットボット)",
        r"(?:できません|出来ません|できない|出来ない|いたしかね|致しかね|できかね|不可能|持っていません|備わっていません|能力はありません)(?!でした)",
    ),
    "ko": (
        r"",
        r"(?:AI|인공 ?지능|언어 ?모델|챗봇)",
        r"(?:수 ?(?:는|가)? ?없|못합니다|못해요|불가능|능력이 없|기능이 없|권한이 없)",
    ),
    "th": (
        r"(?:ในฐานะ|เนื่องจาก|เพราะ|เป็น)[^!?]{0,30}?",
        r"(?:AI|เอไอ|ปัญญาประดิษฐ์|(?:โมเดล|แบบจำลอง)ภาษา|แชทบอท)",
        r"(?:ไม่สามารถ|ทำ[^!?]{0,20}ไม่ได้|ไม่มีความสามารถ|ไม่ได้รับ)",
    ),
    "ar": (
        r"(?:بصفتي|كوني|لكوني|باعتباري|بما ?أنني|بما أني|لأنني|أنا|انا|كنموذج|كذكاء|كمساعد)[^.!؟]{0,20}?",
        r"(?:ذكاء[ ا]*اصطناعي|الذكاء الاصطناعي|نموذجا? ?لغوي|لغوي|روبوت|برنامج|اصطناعي|AI)",
        r"(?:لا (?:أستطيع|استطيع|يمكنني|أملك|أقدر)|غير قادر|ليس لدي|لست قادر|ليست لدي|لا تتوفر لدي)",
    ),
    "es": (
        r"\b(?:como|soy|al ser|siendo)\b[^.!?]{0,25}?",
        r"\b(?:ia|inteligencia artificial|modelo de (?:lenguaje|ia)|chatbot|ai)\b",
        r"\bno (?:puedo|me es posible|soy capaz|tengo|dispongo|estoy en condiciones)\b",
    ),
    "fr": (
        r"\b(?:en tant qu\w*|je (?:ne )?suis|étant|comme je suis)\b[^.!?]{0,25}?",
        r"\b(?:ia|intelligence artificielle|modèle de langage|chatbot|ai)\b",
        r"\b(?:ne (?:peux|puis|suis|dispose|possède) (?:\w+ )?pas|n['’](?:ai|arrive) pas|incapable|dans l['’]incapacité)\b",
    ),
    "de": (
        r"\b(?:als|bin|da ich)\b[^.!?]{0,25}?",
        r"\b(?:ki|künstliche[nr]? intelligenz|sprachmodell|ki-\w+|chatbot|ai)\b",
        r"\b(?:nicht|keine?[nr]?|außerstande)\b",
    ),
    "pt": (
        r"\b(?:como|sou|por ser|sendo)\b[^.!?]{0,25}?",
        r"\b(?:ia|inteligência artificial|modelo de linguagem|chatbot|ai)\b",
        r"\bnão (?:posso|consigo|sou capaz|tenho|me é possível|é possível)\b",
    ),
    "it": (
        r"\b(?:in quanto|come|sono|essendo)\b[^.!?]{0,25}?",
        r"\b(?:ia|intelligenza artificiale|modello linguistico|chatbot)\b",
        r"\bnon (?:posso|riesco|sono in grado|ho)\b",
    ),
    "vi": (
        r"(?:là|với tư cách)[^.!?]{0,25}?",
        r"(?:(?-i:AI)|trí tuệ nhân tạo|mô hình ngôn ngữ|chatbot)",
        r"không (?:thể|có khả năng|có quyền|được phép)",
    ),
    "ru": (
        r"\b(?:как|я)\b[^.!?]{0,25}?",
        r"\b(?:ии|искусственн\w+ интеллект\w*|языков\w+ модел\w+|чат-бот\w*)\b",
        r"\bне (?:могу|способ\w+|имею|умею|в состоянии)\b",
    ),
}
ROLE_BREAK = re.compile("|".join(r"[^.!?。！？؟]{0,60}?".join(parts) for parts in ROLE_BREAKS.values()), re.I)
# Every ROLE_BREAK contains one of these, in lower case.
MACHINES = (
    *(
        "人工智",
        "语言模型",
        "語言模型",
        "大模型",
        "机器人",
        "機器人",
        "人工知能",
        "言語モデル",
        "ボット",
        "인공",
        "언어",
        "챗봇",
    ),
    *(
        "เอไอ",
        "ปัญญาประดิษฐ์",
        "ภาษา",
        "แชทบอท",
        "اصطناعي",
        "لغوي",
        "روبوت",
        "برنامج",
        "artificial",
        "artificielle",
        "künstliche",
    ),
    *(
        "ia ",
        "ia,",
        "modelo de ",
        "modèle de langage",
        "sprachmodell",
        "ki ",
        "ki,",
        "ki-",
        "chatbot",
        "artificiale",
        "modello ling",
    ),
    *("nhân tạo", "mô hình", "искусственн", "языков", " ии", "чат-бот"),
)
# Short names of machines, as whole words: few English texts have one.
SHORT_NAMES = ("ia", "ki", "ai")
SHORT_NAME = re.compile(r"(?<![a-zà-ÿ])(?:ia|ki|ai)(?![a-zà-ÿ])")
ARABIC_VOWELS = re.compile("[\u064b-\u0652\u0640]")

ENGLISH_DECLINED = re.compile(
    r"\b(?:(?:i|we)(?:['’]?m| am|['’]?re| are)? (?:sorry,? but|afraid|unable to|not able to|not allowed to|not permitted to)|"
    r"(?:i|we) (?:(?:can['’]?t|cannot|can not|won['’]?t)(?! (?:promise|guarantee|say|tell|wait)\b)|must decline)|"
    r"(?:is|are|was)(?: not|n['’]t) (?:possible|allowed|permitted|eligible|refundable)|policy (?:does not|doesn['’]t) allow)\b",
    re.I,
)
DECLINED = re.compile(
    "|".join(
        (
            # Chinese
            r"(?:我们?|我們)?(?<!是否)(?:无法|無法|不能|没办法|沒辦法)(?:为您|為您|帮您|幫您|直接|给您|替您|对|將|将|在|办理|辦理|退|取消|更改|修改|提供|处理|處理|接受|完成|满足|协助|預|预|更换|享受)",
            r"(?:政策|规定|規定|规则|規則)[^。！？]{0,25}(?:不允许|不允許|不支持|禁止|不接受|不可)|不予(?:退款|受理|办理|辦理)|不符合[^。]{0,12}(?:条件|條件|要求|资格|資格|政策|规定)",
            r"不(?:可以|能|可)(?:退款|退货|退貨|退换|退換|取消|更改|修改)",
            # Japanese
            r"(?:することが|は|を|も|が|に)?(?<!保証)(?<!約束)(?:できません|出来ません|いたしかねます|致しかねます|できかねます|しかねます|承れません|お受けできません)(?!でした|か)",
            r"(?:認められて|許可されて)(?:い|おり)ません|対象外(?:です|と|の)|不可能です",
            # Korean
            r"(?:해 ?드릴|할|드릴|될|받을|도와드릴|진행할|변경할|취소할) ?수(?:가|는)? ?없|불가(?:능)?(?:합니다|해요|하며)|허용(?:되지|하지) 않|어렵습니다|대상이 아닙니다",
            # Thai
            r"ไม่สามารถ(?!รับประกัน|บอกได้)|ไม่อนุญาต|ไม่ได้รับอนุญาต|ไม่เข้าเงื่อนไข|ไม่มีสิทธิ",
            # Arabic
            r"لا (?:أستطيع|يمكنني|يمكننا|نستطيع|تسمح|يسمح|يمكن)|غير (?:ممكن|مسموح|مؤهل|قابل|قادر)|لن (?:أتمكن|نتمكن)|يتعذر علي",
            # Spanish, Portuguese
            r"\bno (?:puedo|podemos|es posible|está permitido|me es posible|nos es posible|se permite|se puede)(?! (?:garantizar|prometer|decir))|política no (?:lo )?permite",
            r"\bnão (?:posso|podemos|é possível|é permitid[oa]|consigo|conseguimos|está autorizad[oa]|se permite)(?! (?:garantir|prometer|dizer))|política não permite",
            # French
            r"\bne (?:peux|pouvons|puis) (?:\w+ )?pas(?! (?:garantir|promettre))|\bn['’]est (?:\w+ )?pas (?:possible|autorisée?|permise?|éligible|remboursable)|politique n['’]autorise pas|ne permet(?:tent)? pas",
            # German
            r"\b(?:kann|können|darf|dürfen) (?:\S+ ){0,8}?(?:nicht|keine?n?)\b(?! (?:garantieren|versprechen|sagen))|\bnicht (?:möglich|erlaubt|gestattet|zulässig|erstattungsfähig)\b",
            # Vietnamese
            r"không thể(?! (?:hứa|đảm bảo|nói))|không được phép|không cho phép|không đủ điều kiện",
        )
    ),
    re.I,
)


def find_role_break(text: str) -> str:
    """Return the phrase with which the assistant declines because it is a machine; "" if there is none."""
    low = text.lower()
    found = ENGLISH_ROLE_BREAK.search(text) if any(word in low for word in ENGLISH_MACHINES) else None
    if found is not None or is_surely_english(low[:600], every=300):
        return found[0] if found else ""
    if any(word in low for word in MACHINES) or (any(name in low for name in SHORT_NAMES) and SHORT_NAME.search(low)):
        found = ROLE_BREAK.search(unicodedata.normalize("NFC", ARABIC_VOWELS.sub("", text)))
    return found[0] if found else ""


def says_declined(text: str) -> bool:
    """Return whether a text declines in one of the usual ways of its language."""
    return bool(ENGLISH_DECLINED.search(text) or DECLINED.search(ARABIC_VOWELS.sub("", text)))
