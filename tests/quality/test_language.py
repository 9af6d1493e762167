"""The language of texts and trajectories, and results in another language than their seed's."""

from __future__ import annotations

import pytest

from simia.errors import Code
from simia.quality import language as language_check
from simia.quality.check import Checks, check_trajectory
from simia.quality.language import compare_language, describe_weak_check, find_trajectory_languages, identify_language
from simia.quality.scripts import find_script
from simia.trajectory import Message, Trajectory

TEXTS = {
    "en": "I would like to change the delivery address of my parcel before it leaves.",
    "zh": "我想在包裹发出之前修改收货地址，可以吗？",
    "ja": "荷物が出る前に、お届け先を変更していただけますか。",
    "ko": "소포가 나가기 전에 배송 주소를 바꾸고 싶어요.",
    "th": "ช่วยเปลี่ยนที่อยู่จัดส่งพัสดุก่อนที่จะออกจากคลังได้ไหม",
    "ar": "أريد تغيير عنوان توصيل الطرد قبل أن يغادر المستودع من فضلك.",
    "es": "Quisiera cambiar la dirección de entrega de mi paquete antes de que salga.",
    "fr": "Je voudrais changer l'adresse de livraison de mon colis avant son départ.",
    "de": "Ich möchte die Lieferadresse meines Pakets ändern, bevor es losgeht.",
    "pt": "Gostaria de mudar o endereço de entrega do meu pacote antes que ele saia.",
    "vi": "Tôi muốn đổi địa chỉ giao hàng của gói hàng trước khi nó rời kho.",
    "ru": "Я хочу изменить адрес доставки посылки, пока она не отправлена.",
    "hi": "मैं पार्सल निकलने से पहले डिलीवरी का पता बदलना चाहता हूँ।",
}
UNSURE = [
    "",
    "OK",
    "ORD-20417",
    "john.perez@example.com",
    "谢",
    "{}",
    "12.50 €",
    "東京都",
    "https://example.com/a?b=c",
    "🙂",
]


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_of_a_sentence(language: str) -> None:
    assert identify_language(TEXTS[language]) == language
    assert identify_language(f"{TEXTS[language]} ORD-20417 john.perez@example.com") == language


@pytest.mark.parametrize("text", UNSURE)
def test_a_short_or_unsure_text_has_none(text: str) -> None:
    assert identify_language(text) == ""


def test_names_in_another_script_do_not_change_the_language() -> None:
    assert identify_language("请帮我预订 Hilton Garden Inn 的房间，住两个晚上") == "zh"
    assert identify_language("Please write to 李雷 that the meeting with the team is at nine") == "en"


def conversation(user: str, assistant: str, *, system: str | None = None, result: str = "{}") -> Trajectory:
    said = [("user", user), ("assistant", "Yes."), ("user", "OK"), ("tool", result), ("assistant", assistant)]
    messages = [Message.model_validate({"role": role, "content": content}) for role, content in said]
    return Trajectory(system=system, messages=messages)


def test_a_code_mixed_conversation_has_several_languages() -> None:
    assert find_trajectory_languages(conversation(TEXTS["zh"], TEXTS["en"])) == {"zh", "en"}
    assert find_trajectory_languages(conversation(TEXTS["fr"], TEXTS["fr"], result=TEXTS["de"])) == {"fr"}


def rejected(t: Trajectory, seed: Trajectory | None, *, language: bool = True) -> list[str]:
    issues = check_trajectory(t, Checks(language=language), seed=seed)
    return [issue.where for issue in issues if issue.code is Code.LANGUAGE]


@pytest.mark.parametrize("language", TEXTS)
def test_a_result_in_another_language_than_the_seeds_is_rejected(language: str) -> None:
    seed = conversation(TEXTS[language], TEXTS[language])
    other = TEXTS["zh" if language != "zh" else "en"] * 2
    assert rejected(conversation(other, TEXTS[language]), seed) == ["messages[0]"]
    assert rejected(conversation(TEXTS[language], other), seed)
    assert rejected(conversation(other, other), seed, language=False) == []
    assert rejected(conversation(TEXTS[language] * 2, TEXTS[language] * 2, result=other), seed) == []
    assert rejected(conversation(other, other), None) == []


def test_all_languages_of_a_mixed_seed_are_allowed() -> None:
    seed = conversation(TEXTS["zh"], TEXTS["en"])
    for user in ("zh", "en"):
        assert rejected(conversation(TEXTS[user] * 2, TEXTS["zh"] * 2), seed) == []
    assert rejected(conversation(TEXTS["es"] * 2, TEXTS["zh"]), seed) == ["messages[0]"]


def test_a_language_that_the_policy_names_is_allowed_and_the_policys_own_is_not() -> None:
    answer = conversation(TEXTS["es"], TEXTS["es"])
    seed = conversation(TEXTS["en"], TEXTS["en"], system="Answer in the customer's language, English or Spanish.")
    assert rejected(answer, seed) == []
    chinese = conversation(TEXTS["zh"], TEXTS["zh"], system="The assistant keeps this policy and is careful with it.")
    assert rejected(conversation(TEXTS["en"], TEXTS["en"]), chinese)


def test_short_texts_and_seeds_without_a_sure_language_reject_nothing() -> None:
    assert rejected(conversation("OK", "D'accord."), conversation(TEXTS["en"], TEXTS["en"])) == []
    assert rejected(conversation(TEXTS["zh"], TEXTS["zh"]), conversation("OK", "ORD-1")) == []


# Words that English shares: is, of, to, do, i, by, me, for.
SHARED_WORDS = {
    "nl": (
        "Goedemiddag, ik wil graag mijn bestelling annuleren.",
        "Dank u, is dat alles of is het nog niet klaar? Dan is het goed zo.",
    ),
    "pl": (
        "Dzień dobry, chciałbym anulować zamówienie na lampę.",
        "Czy to wszystko i czy mam czekać do piątku, by to sprawdzić? Do kiedy?",
    ),
    "da": (
        "Goddag, jeg vil gerne afbestille min lampe, tak.",
        "Jeg vil gerne til Aarhus i dag, i morgen for to personer og for et barn.",
    ),
}


@pytest.mark.parametrize("language", SHARED_WORDS)
def test_words_that_english_shares_make_no_text_english(language: str) -> None:
    first, last = SHARED_WORDS[language]
    seed = conversation(f"{first} {first}", first)
    assert find_trajectory_languages(seed) == {language}
    assert rejected(conversation(last, first), seed) == []
    assert rejected(conversation(last, f"{last} {last}"), seed) == []
    assert rejected(conversation(TEXTS["en"], first), seed) == ["messages[0]"]
    assert rejected(conversation(first, TEXTS["en"]), seed)


TITLES = {
    "id": "Untuk pesanan Anda kami punya tiga judul: The Lord of the Rings, The Hobbit dan Dune. Harga semuanya sama dan stok masih ada di toko kami.",
    "tr": "Merhaba, sepetinizde The Lord of the Rings ve The Hobbit var. Siparis numaranizi yazar misiniz, hemen kontrol edip size bilgi verecegim.",
    "pl": "W koszyku jest The Lord of the Rings oraz The Hobbit. Prosze podac numer zamowienia, sprawdze dostawe i od razu odpowiem na pytanie.",
    "sv": "Jag har lagt The Lord of the Rings och The Hobbit i varukorgen. Vill du att jag skickar dem till din vanliga adress i Malmo imorgon?",
}


@pytest.mark.parametrize("language", TITLES)
def test_english_titles_make_no_text_english(language: str) -> None:
    assert compare_language(TITLES[language], frozenset([language]), frozenset()) == ""


def test_a_short_text_is_not_english_for_few_words() -> None:
    assert identify_language("Is it to do?", least=60) == ""
    assert identify_language("Is it what you need?") == "en"


# Languages that share a script with one of TEXTS.
RELATED = {
    "fa": "سلام، دستگاه ژنراتور ما از صبح خاموش می‌شود و روشن نمی‌شود. لطفاً کمک کنید.",
    "ur": "میں پارسل کے روانہ ہونے سے پہلے ترسیل کا پتہ تبدیل کرنا چاہتا ہوں۔",
    "uk": "Я хочу змінити адресу доставки посилки, поки її ще не відправили.",
    "bg": "Искам да променя адреса за доставка на пратката, преди да бъде изпратена.",
    "sr": "Желим да променим адресу испоруке, јер се селим следеће недеље. Хвала вам љубазно.",
    "nl": "Goedemiddag, kunt u de factuur van dit contract nog een keer naar mij sturen? Ik heb het niet meer.",
}
SCRIPTS = {
    "ar": "Arabic",
    "ru": "Cyrillic",
    "hi": "Devanagari",
    "th": "Thai",
    "ko": "Hangul",
    "ja": "Han",
    "en": "Latin",
}
POLISH = "Chciałbym zmienić adres dostawy mojej paczki, zanim opuści magazyn, ponieważ przeprowadzam się jutro rano."


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let py3langid be missing, and forget the languages of seeds that were identified with it."""
    monkeypatch.setattr(language_check, "load_identifier", lambda: None)
    monkeypatch.setattr(language_check, "_KNOWN", {})


@pytest.mark.parametrize("language", SCRIPTS)
def test_the_script_of_a_sentence(language: str) -> None:
    assert find_script(TEXTS[language], 12) == SCRIPTS[language]
    assert find_script(TEXTS[language][:3], 12) == ""


@pytest.mark.parametrize(
    "language", ["ar", "fa", "ur", "ru", "uk", "bg", "sr", "nl", "en", "zh", "ja", "ko", "th", "hi"]
)
def test_the_language_of_a_sentence_without_the_extra(without_extra: None, language: str) -> None:
    assert identify_language((TEXTS | RELATED)[language]) == language


@pytest.mark.parametrize(
    ("seed", "result"),
    [("ar", "en"), ("ar", "fa"), ("ar", "zh"), ("ru", "en"), ("ru", "uk"), ("de", "nl"), ("de", "ar")],
)
def test_another_language_is_rejected_without_the_extra(without_extra: None, seed: str, result: str) -> None:
    texts = TEXTS | RELATED
    exemplar = conversation(f"{texts[seed]} Das ist nicht die Frage." if seed == "de" else texts[seed], texts[seed])
    assert rejected(conversation(texts[result] * 2, texts[seed]), exemplar) == ["messages[0]"]
    assert rejected(conversation(texts[seed] * 2, texts[seed] * 2), exemplar) == []


def test_words_that_english_shares_make_no_text_english_without_the_extra(without_extra: None) -> None:
    first, last = SHARED_WORDS["nl"]
    seed = conversation(RELATED["nl"], RELATED["nl"])
    assert find_trajectory_languages(seed) == {"nl"}
    assert rejected(conversation(last, first), seed) == []
    assert rejected(conversation(TEXTS["en"] * 2, first), seed) == ["messages[0]"]


def test_texts_of_unknown_languages_are_compared_by_script(without_extra: None) -> None:
    polish = conversation(POLISH, POLISH)
    for other in ("ar", "ru", "zh", "ko"):
        assert rejected(conversation(TEXTS[other] * 2, POLISH), polish) == ["messages[0]"]
    assert rejected(conversation(POLISH, POLISH), polish) == []
    names = "请帮我预订 Hilton Garden Inn San Francisco Airport North, Grand Hyatt at Terminal Two and Burlingame Marriott 的房间"
    chinese = conversation(TEXTS["zh"], TEXTS["zh"])
    assert rejected(conversation(names, TEXTS["zh"]), chinese) == [], "names in another script"
    arabic = conversation(TEXTS["ar"], TEXTS["ar"])
    assert rejected(conversation(POLISH, TEXTS["ar"]), arabic) == ["messages[0]"]
    names_english = conversation(TEXTS["ar"], TEXTS["ar"], system="Answer in Arabic or English.")
    assert rejected(conversation(POLISH, POLISH), names_english) == [], "a policy that names a language of this script"


def test_seeds_whose_language_is_not_certain_are_counted(without_extra: None, monkeypatch: pytest.MonkeyPatch) -> None:
    arabic, polish, english = (conversation(text, text) for text in (TEXTS["ar"], POLISH, TEXTS["en"]))
    unknown, unlike = describe_weak_check([arabic, polish, english, arabic])
    assert unknown.startswith("1 of 4 seeds: their language is not known, so that only results in another script")
    assert unlike.startswith(
        "2 of 4 seeds: of the languages of their script, only some are told apart (ar, be, bg, de, "
    )
    assert unlike.endswith("pip install 'simia[languages]'")
    assert describe_weak_check([english, conversation(TEXTS["ja"], TEXTS["ja"])]) == []
    monkeypatch.undo()
    assert describe_weak_check([conversation(POLISH, POLISH)]) == [], "the extra knows Polish"
