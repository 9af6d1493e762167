"""The language of texts and trajectories, and results in another language than their seed's."""

from __future__ import annotations

import pytest

from simia.errors import Code
from simia.quality.check import Checks, check_trajectory
from simia.quality.language import find_trajectory_languages, identify_language
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
