"""Identify the language of texts and trajectories, offline.

Chinese, Japanese, Korean, Thai and other languages with a script of their own are identified by the script, and English by common
words. Other texts, mostly Latin and Cyrillic, are passed to py3langid (the extra `languages`), whose model (naive Bayes over bytes) is
loaded at first use. Without it, seven more languages are identified by their common words, those of Arabic and Cyrillic script by their
letters, and other texts are unsure: of these only the script is compared with the seed's. py3langid was the most accurate of five light
libraries on 77 sentences of 13 languages (77 right with the languages below; whatlang 67, CLD2 68), and the only maintained one without
compiled code of its own; the script rules cost a fiftieth of it. Identifiers, addresses and numbers have no language and are removed first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from simia.errors import Code, Issue
from simia.quality.scripts import LETTERS, OF_LANGUAGE, find_by_letters, find_script, find_scripts
from simia.quality.trajectory_view import TrajectoryView
from simia.terminal import write_count
from simia.trajectory import Trajectory

LONGEST = 600  # characters that are looked at: more changes no answer
MODEL_LONGEST = (
    200  # of these, that the model reads; a longer text takes numpy's multithreaded product, slow on a busy machine
)
LEAST_LETTERS = 12  # of a Latin text; a letter of a dense script counts as three
SURE = 0.6  # least probability of py3langid, among the languages below
DENSE = 3
MANY_LETTERS, SURER = 60, 0.9  # of a text that is rejected for its language
GLANCE = 240  # characters in which English is looked for first
MOST_SEEDS = 4096  # whose languages are kept
# Tokens with a digit, an address or a path, words in capitals or with a capital inside, and bracketed markup.
NO_LANGUAGE = re.compile(r"<[^<>]{1,80}>|https?://\S+|[!-~]*[@\d_/\\#][!-~]*|\b[A-Z]{2,}\b|\b[a-z]+[A-Z]\w*")
LATIN = re.compile(r"[A-Za-zªºÀ-ÖØ-öø-ʯḀ-ỿ]")
CYRILLIC = re.compile(r"[Ѐ-ԯ]")
KANA = re.compile(r"[ぁ-ゖァ-ヺーｦ-ﾝ]")
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]")
# A Chinese text of some length has one of these; a heading of kanji has none.
CHINESE = re.compile(r"[的了我你您是请請们們吗嗎这這那么麼在有不要把给給个個和帮幫没沒就吧呢]")
ARABIC = re.compile(r"[ء-ۿݐ-ݿ]")
# Scripts that decide by themselves. Those shared by several languages have the name of the most frequent one.
SCRIPTS = (
    ("ko", re.compile(r"[가-힣ᄀ-ᇿㄱ-ㆎ]")),
    ("th", re.compile(r"[ก-๛]")),
    ("el", re.compile(r"[Ͱ-Ͽἀ-῿]")),
    ("he", re.compile(r"[א-ת]")),
    ("hi", re.compile(r"[ऀ-ॿ]")),
    ("bn", re.compile(r"[ঀ-৿]")),
    ("ta", re.compile(r"[஀-௿]")),
    ("te", re.compile(r"[ఀ-౿]")),
    ("km", re.compile(r"[ក-៿]")),
    ("my", re.compile(r"[က-႟]")),
    ("lo", re.compile(r"[ກ-ໝ]")),
    ("ka", re.compile(r"[Ⴀ-ჿ]")),
    ("hy", re.compile(r"[Ա-֏]")),
)
WORD = re.compile(r"[^\W\d_]+")
ENGLISH_WORDS = (
    "the and you your of to for with this that have please would what my it i is are can will be me do how from need "
    "could there here which any when where by has was been should about thanks thank hello hi not"
)
FREQUENT = (" the ", " to ", " you ", " of ", " and ", " is ", " i ", " your ", " for ", " it ", " we ", " at ")
OWN_WORDS = (
    "the and you your with this that please would what how from could there which when where should about thanks thank"
)
ENGLISH = frozenset(ENGLISH_WORDS.split())
ENGLISH_ALONE = frozenset(OWN_WORDS.split())  # words that other languages do not share, unlike "is", "of", "to" and "i"
# For other languages, only words that are rare in the rest: a text of the expected language then needs no model.
FUNCTION_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "es": "el los las y del está más pero puede gracias usted hay se su en por mi he una con para al lo soy desde",
        "fr": "le les des une je vous est et dans votre nous pas sur avec au un du j'ai il",
        "de": "der die das und ich ist nicht sie ein eine mit für den zu auf wir ihr kann bitte dem habe",
        "pt": "o os as um uma não você em do da com é meu seu mais ao",
        "it": "il di che è non per sono ho gli del della un mi posso",
        "nl": "het een en niet voor met van u ik uw zijn wordt kunt kan graag naar heeft ook deze maar bij op",
        "vi": "tôi bạn là có của không cho được và này một đã các trong với",
    }.items()
}
BY_LETTERS = [name for languages in LETTERS.values() for name, _ in languages if name]
# Languages of Latin, Cyrillic and Arabic script that are told apart: fewer than py3langid knows, so that short texts are
# not taken for a rare relative of their language.
AMONG = "en es fr de it pt nl vi id tr pl ro cs sv da no fi hu ca hr sk sl et lv lt sw tl ru uk bg sr be kk mk ar fa ur"
SHARED = frozenset(AMONG.split()) - {"en"}
NAMES = {
    "en": ("english", "英语", "英文", "英語", "inglés", "anglais", "englisch"),
    "zh": ("chinese", "mandarin", "中文", "汉语", "中国語"),
    "ja": ("japanese", "日语", "日文", "日本語"),
    "ko": ("korean", "韩语", "한국어"),
    "th": ("thai", "ภาษาไทย"),
    "ar": ("arabic", "العربية"),
    "es": ("spanish", "español", "西班牙语"),
    "fr": ("french", "français", "法语"),
    "de": ("german", "deutsch", "德语"),
    "pt": ("portuguese", "português"),
    "vi": ("vietnamese", "tiếng việt"),
    "it": ("italian", "italiano"),
    "ru": ("russian", "русск"),
    "hi": ("hindi", "हिन्दी", "हिंदी"),
    "id": ("indonesian", "bahasa indonesia"),
    "tr": ("turkish", "türkçe"),
    "nl": ("dutch", "nederlands"),
}


def identify_language(text: str, *, sure: float = SURE, least: int = LEAST_LETTERS, expect_english: bool = True) -> str:
    """Return the ISO 639-1 code of a text's language; "" if the text is too short, mixed or unsure.

    Args:
        text: The text; its first 600 characters are looked at.
        sure: The least probability of a language that the model identifies.
        least: The fewest letters; one of Chinese, Japanese or Korean counts as three.
        expect_english: Whether words that English shares with other languages also show English.
    """
    text = text[:LONGEST]
    if is_nearly_ascii(text) and is_english(text.lower().split(), expect_english) and has_letters(text, least):
        return "en"
    text = NO_LANGUAGE.sub(" ", text)
    latin = len(LATIN.findall(text))
    han, kana = len(HAN.findall(text)), len(KANA.findall(text))
    if han or kana:
        dense = DENSE * (han + kana)
        if dense >= 0.4 * (dense + latin) and dense >= least:
            return identify_east_asian(text, han, kana)
        if dense > 0.25 * (dense + latin):
            return ""
    counts = [(len(pattern.findall(text)), language) for language, pattern in SCRIPTS]
    most, language = max(counts)
    if most > latin and most > han + kana:
        return language if (DENSE if language == "ko" else 1) * most >= least else ""
    letters = latin + len(CYRILLIC.findall(text)) + len(ARABIC.findall(text))
    return identify_latin(text, sure, expect_english) if letters >= least else ""


def identify_east_asian(text: str, han: int, kana: int) -> str:
    """Return "ja" or "zh" for a text with Han or Kana, "ko" if most of it is Hangul; "" for a few characters that may be Chinese or Japanese."""
    korean = len(SCRIPTS[0][1].findall(text))
    if korean > han + kana:
        return "ko"
    if kana > 0.1 * (han + kana):
        return "ja"
    return "zh" if CHINESE.search(text) or han >= 30 else ""


def identify_latin(text: str, sure: float, expect_english: bool) -> str:
    words = WORD.findall(text.lower())
    if len(words) < 3:
        return ""
    if is_english(words, expect_english):
        return "en"
    identify = load_identifier()
    if identify is None:
        return find_by_common_words(words) or find_by_letters(text)
    language, probability = identify(" ".join(text.split())[:MODEL_LONGEST])
    return language if probability >= sure else ""


def find_by_common_words(words: Sequence[str]) -> str:
    """Return the language whose frequent words are at least an eighth of the words, and twice as many as those of any other."""
    counts = sorted(
        ((sum(map(common.__contains__, words)), each) for each, common in FUNCTION_WORDS.items()), reverse=True
    )
    (most, language), (second, _) = counts[:2]
    return language if most >= max(4, len(words) / 8, 2 * second) else ""


def is_nearly_ascii(text: str) -> bool:
    """Return whether at most a few letters are beyond ASCII, such as those of a name or a currency."""
    return text.isascii() or 10 * len(text.encode("utf-8", "replace")) <= 11 * len(text)


def has_letters(text: str, least: int) -> bool:
    return len(text) >= least and sum(map(str.isalpha, text)) >= least


def is_english(words: Sequence[str], expected: bool) -> bool:
    """Return whether at least three words are frequent ones of English, and fewer are those of any other language.

    If English is expected, they are a sixth of the words. If not, words that other languages share do not count, and a twelfth is enough;
    there are two different ones then, since a list of English titles has "the" many times.
    """
    english = sum(map((ENGLISH if expected else ENGLISH_ALONE).__contains__, words))
    if english < 3 or (6 if expected else 12) * english < len(words):
        return False
    if not expected and len(ENGLISH_ALONE.intersection(words)) < 2:
        return False
    return all(english > sum(map(common.__contains__, words)) for common in FUNCTION_WORDS.values())


@cache
def load_identifier() -> Callable[[str], tuple[str, float]] | None:
    """Load py3langid's model, which takes a third of a second and 60 MB and is not needed for English. None if it cannot be loaded."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    except (ImportError, OSError):  # it unpacks the model into a temporary file, for which the disk may have no room
        return None
    identifier.set_languages(AMONG.split())
    classify: Callable[[str], tuple[str, float]] = identifier.classify
    return classify


def find_languages(texts: Iterable[str]) -> frozenset[str]:
    """Return the languages of texts, each by itself and all together; those that are unsure are left out."""
    each = list(texts)
    return frozenset(map(identify_language, [*each, "\n".join(each)])) - {""}


def find_trajectory_languages(t: Trajectory) -> frozenset[str]:
    """Return the languages of the user's and the assistant's texts. A code-mixed conversation has several."""
    return frozenset().union(
        *(find_languages(m.text for m in t.messages if m.role == role and m.text) for role in ("user", "assistant"))
    )


def find_named_languages(text: str) -> frozenset[str]:
    """Return the languages that a policy names, such as "answer in Spanish"."""
    low = text.lower()
    return frozenset(language for language, names in NAMES.items() if any(name in low for name in names))


def find_other_language(view: TrajectoryView, seed: Trajectory) -> list[Issue]:
    """Report texts of the user or of the assistant in a language that the seed does not have, or in another script where a language is
    not known. Short or unsure texts are fine."""
    allowed, scripts = find_seed_languages(seed), find_seed_scripts(seed)
    if not allowed and not scripts:
        return []
    texts, lows = view.texts, view.lows
    by_role: dict[str, list[int]] = {"user": [], "assistant": []}
    for i, message in enumerate(view.t.messages):
        if texts[i] and (wanted := by_role.get(message.role)) is not None:
            wanted.append(i)
    for role, places in by_role.items():
        groups = [places[:8], places[-1:]] if len(places) > 1 else [places]
        for group in groups:
            glance = " ".join([lows[i] for i in group[:3]])[:GLANCE]
            if len(glance) < MANY_LETTERS // DENSE or is_surely_one_of(allowed, glance):
                continue
            detail = compare_language(" ".join([texts[i] for i in group]), allowed, scripts)
            if detail:
                return [Issue(code=Code.LANGUAGE, where=f"messages[{group[0]}]", detail=f"the {role} writes {detail}")]
    return []


def compare_language(text: str, allowed: frozenset[str], scripts: frozenset[str]) -> str:
    """Return how the language of a text differs from the seed's; "" if it does not, or if this is unsure."""
    language = identify_language(text, sure=SURER, least=MANY_LETTERS, expect_english="en" in allowed)
    if language and allowed:
        return "" if language in allowed else f"{language!r}, the seed {', '.join(sorted(allowed))}"
    script = find_script(NO_LANGUAGE.sub(" ", text[:LONGEST]), MANY_LETTERS) if scripts else ""
    return f"{script} script, the seed {', '.join(sorted(scripts))}" if script and script not in scripts else ""


def is_surely_one_of(allowed: frozenset[str], low: str) -> bool:
    """Return whether an eighth of the words, and at least four, are frequent ones of one of the languages."""
    if "en" in allowed and is_surely_english(low):
        return True
    common = [FUNCTION_WORDS[language] for language in allowed if language in FUNCTION_WORDS]
    if not common:
        return False
    words = low.split()
    return any(max(4, len(words) / 8) <= sum(map(known.__contains__, words)) for known in common)


def is_surely_english(low: str, *, every: int = 80) -> bool:
    """Return whether a lower-case text has an English function word every 80 characters (`every`), as nearly all English texts do."""
    return is_nearly_ascii(low) and every * (sum(map(low.count, FREQUENT))) >= len(low)


def find_seed_languages(seed: Trajectory) -> frozenset[str]:
    """Return the languages that trajectories from a seed may have: those of its messages, and those that its policy names.
    They are computed once for each seed object."""
    return know_seed(seed).languages


def find_seed_scripts(seed: Trajectory) -> frozenset[str]:
    """Return the scripts that trajectories from a seed may have: those of its messages, and of the languages that its policy names."""
    return know_seed(seed).scripts


@dataclass(frozen=True, slots=True)
class SeedLanguages:
    """What trajectories from a seed may be written in. The seed is kept, so that no other object gets its id."""

    seed: Trajectory
    languages: frozenset[str]
    scripts: frozenset[str]


def know_seed(seed: Trajectory) -> SeedLanguages:
    known = _KNOWN.get(id(seed))
    if known is None:
        if len(_KNOWN) >= MOST_SEEDS:
            _KNOWN.clear()
        languages = find_trajectory_languages(seed)
        named = find_named_languages(seed.system) if seed.system else frozenset()
        texts = (NO_LANGUAGE.sub(" ", m.text) for m in seed.messages if m.role in ("user", "assistant") and m.text)
        scripts = find_scripts(texts, LEAST_LETTERS)
        if languages:
            languages |= named
        if scripts:
            scripts |= {OF_LANGUAGE.get(language, "Latin") for language in named}
        known = _KNOWN[id(seed)] = SeedLanguages(seed, languages, scripts)
    return known


_KNOWN: dict[int, SeedLanguages] = {}


def describe_weak_check(seeds: Sequence[Trajectory]) -> list[str]:
    """Say for how many seeds results in another language of their script are not noticed, and what helps."""
    unknown = unlike = 0
    for seed in seeds:
        languages = find_seed_languages(seed)
        if not languages:
            unknown += bool(find_seed_scripts(seed))
        elif languages & SHARED and load_identifier() is None:
            unlike += 1
    missing = load_identifier() is None if unknown or unlike else False
    remedy = "; to compare the language: pip install 'simia[languages]'" if missing else ""
    lines = []
    if unknown:
        only = "their language is not known, so that only results in another script are rejected"
        lines.append(f"{unknown:,} of {write_count(len(seeds), 'seed')}: {only}{remedy}")
    if unlike:
        known = ", ".join(sorted(["en", *FUNCTION_WORDS, *BY_LETTERS]))
        only = f"of the languages of their script, only some are told apart ({known})"
        lines.append(f"{unlike:,} of {write_count(len(seeds), 'seed')}: {only}{remedy}")
    return lines
