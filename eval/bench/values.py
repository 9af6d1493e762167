"""Count the different people, addresses and identifiers in the requests of a run: over 5,000 items, per language.

python eval/bench/values.py [--items 5000]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from simia.amplification.fresh_values import choose_fresh_values
from simia.amplification.value_shapes import learn_shapes
from simia.authoring.fresh_people import describe_source
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

# Language → what the user says, and the values in it.
SAID: dict[str, tuple[str, dict[str, Any]]] = {
    "en": (
        "Hello, I am {name}. Please check my order {order_id}; my e-mail address is {email} and my user id is {user_id}. I live in {city}, "
        "my postcode is {zip}, my phone number is {phone}. It was delivered on {date}.",
        {"name": "Mei Wilson", "city": "Denver", "zip": "80214", "phone": "303 555 0142"},
    ),
    "zh": (
        "你好，我叫{name}，请帮我查一下订单{order_id}。我的邮箱是{email}，用户名是{user_id}，我住在{city}，邮编{zip}，电话{phone}。订单是{date}送到的。",
        {"name": "王小明", "city": "上海", "zip": "200040", "phone": "021 5550 1423"},
    ),
    "ja": (
        "こんにちは、{name}です。注文番号は{order_id}です。メールアドレスは{email}、ユーザーIDは{user_id}です。{city}に住んでいます。"
        "郵便番号は{zip}、電話番号は{phone}です。{date}に届きました。",
        {"name": "佐藤 陽子", "city": "横浜市", "zip": "220-0012", "phone": "045-555-0123"},
    ),
    "ko": (
        "안녕하세요, {name}입니다. 주문 번호는 {order_id}입니다. 이메일은 {email}이고 아이디는 {user_id}입니다. {city}에 살고 우편번호는 {zip}, "
        "전화번호는 {phone}입니다. {date}에 도착했어요.",
        {"name": "김민준", "city": "부산", "zip": "47512", "phone": "051-555-0123"},
    ),
    "th": (
        "สวัสดีค่ะ ฉันชื่อ {name} ช่วยตรวจสอบคำสั่งซื้อ {order_id} อีเมล {email} ชื่อผู้ใช้ {user_id} อยู่ที่ {city} รหัสไปรษณีย์ {zip} "
        "โทรศัพท์ {phone} ได้รับเมื่อวันที่ {date}",
        {"name": "สมหญิง ใจดี", "city": "เชียงใหม่", "zip": "50100", "phone": "053 555 012"},
    ),
    "ar": (
        "مرحبا، اسمي {name}. أريد التحقق من الطلب {order_id}. بريدي {email} واسم المستخدم {user_id}. أسكن في {city} والرمز البريدي {zip} "
        "والهاتف {phone}. وصل الطلب في {date}.",
        {"name": "أحمد العتيبي", "city": "جدة", "zip": "22312", "phone": "012 555 0123"},
    ),
    "es": (
        "Hola, soy {name}. Quiero saber dónde está mi pedido {order_id}. Mi correo es {email} y mi usuario {user_id}. Vivo en {city}, mi "
        "código postal es {zip} y mi teléfono {phone}. Llegó el {date}.",
        {"name": "Lucía Moreno", "city": "Sevilla", "zip": "41010", "phone": "954 555 012"},
    ),
    "fr": (
        "Bonjour, je suis {name}. Je voudrais savoir où est ma commande {order_id}. Mon adresse est {email} et mon identifiant {user_id}. "
        "J'habite à {city}, mon code postal est {zip} et mon téléphone {phone}. Elle est arrivée le {date}.",
        {"name": "Hélène Girard", "city": "Lyon", "zip": "69003", "phone": "04 65 71 12 34"},
    ),
    "de": (
        "Guten Tag, ich bin {name}. Bitte prüfen Sie meine Bestellung {order_id}. Meine Adresse ist {email}, meine Kennung {user_id}. Ich "
        "wohne in {city}, die Postleitzahl ist {zip}, meine Nummer {phone}. Sie kam am {date} an.",
        {"name": "Katrin Vogel", "city": "Leipzig", "zip": "04109", "phone": "0341 5550 12"},
    ),
    "pt": (
        "Olá, eu sou {name}. Preciso saber onde está o meu pedido {order_id}. Meu e-mail é {email} e meu usuário é {user_id}. Moro em {city}, "
        "meu CEP é {zip} e meu telefone {phone}. Chegou em {date}.",
        {"name": "Inês Carvalho", "city": "Recife", "zip": "50010-012", "phone": "(81) 5550-0123"},
    ),
    "vi": (
        "Xin chào, tôi là {name}. Vui lòng kiểm tra đơn hàng {order_id} của tôi. Email của tôi là {email}, tên đăng nhập là {user_id}. Tôi sống "
        "ở {city}, mã bưu chính {zip}, số điện thoại {phone}. Hàng đã đến ngày {date}.",
        {"name": "Nguyễn Thị Mai", "city": "Đà Nẵng", "zip": "550012", "phone": "0236 5550 123"},
    ),
}
COMMON = {
    "order_id": "#W5918442",
    "email": "mei.wilson@example.com",
    "user_id": "mei_wilson_1792",
    "date": "2025-05-14",
}
ARGUMENTS = ("name", "email", "user_id", "order_id", "phone", "zip", "city", "date")


def make_seed(language: str) -> Trajectory:
    """Return a seed whose user says a value of each kind."""
    text, own = SAID[language]
    values = {**COMMON, **own}
    properties = {name: {"type": "string"} for name in ARGUMENTS}
    tool = ToolSpec(name="find_order", parameters={"type": "object", "properties": properties})
    call = ToolCall(id="1", name="find_order", arguments=values)
    messages = [
        Message(role="user", content=text.format(**values)),
        Message(role="assistant", calls=[call]),
        Message(role="tool", content="{}", call_id="1"),
        Message(role="assistant", content="OK"),
    ]
    return Trajectory(task_id=language, tools=[tool], messages=messages)


LEAST = 0.98
DISTINCT = ("email", "user_id", "order_id")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=5000)
    items = parser.parse_args().items
    print(f"different values over {items:,} items; names from {describe_source()}")
    print(f"{'':4}" + "".join(f"{name:>10}" for name in ARGUMENTS) + "   µs an item   the first one")
    failed = []
    for language in SAID:
        seed = make_seed(language)
        shapes = learn_shapes([seed])
        first = choose_fresh_values(seed, 0, shapes=shapes)  # reads the tables
        started = time.process_time()
        chosen = [choose_fresh_values(seed, number, shapes=shapes) for number in range(items)]
        micros = (time.process_time() - started) / items * 1e6
        counts = [len({each.get(name) for each in chosen}) for name in ARGUMENTS]
        print(
            f"{language:4}" + "".join(f"{count:10,}" for count in counts) + f"{micros:13.0f}   {list(first.values())}"
        )
    if failed:
        print(f"too few, or too slow: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
