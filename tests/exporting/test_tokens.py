"""The estimate of token counts, against true counts of Qwen2.5's tokenizer."""

import pytest

from simia.exporting import estimate_tokens

# (text, tokens by Qwen2.5's own tokenizer)
TRUE = [
    ("Please cancel my order ORD-20340 and send the refund to the card that I paid with.", 23),
    (
        '{"name": "create_event", "arguments": {"title": "Site report", "start": "2025-09-18T14:00", "end": "2025-09-18T15:30"}}',
        59,
    ),
    ("def total(prices: list[float]) -> float:\n    return round(sum(prices), 2)\n", 21),
    ("Пожалуйста, укажите номер заказа и адрес электронной почты.", 20),
    ("你可以随时取消订单,我们将在五到七个工作日内把款项退回到您的原支付方式。", 21),
    ("Bitte geben Sie die Bestellnummer und die E-Mail-Adresse an, damit wir Ihre Identität prüfen können.", 25),
    ("कृपया अपना ऑर्डर नंबर और ईमेल पता बताएं।", 40),
    ("👩\u200d💻 🚀 ✓ ok", 9),
]


@pytest.mark.parametrize(("text", "truth"), TRUE)
def test_never_below_and_not_far_above(text: str, truth: int) -> None:
    assert truth <= estimate_tokens(text) <= 2 * truth + 1


def test_empty() -> None:
    assert estimate_tokens("") <= 1
