"""Fresh values: one invented person per item, identifiers of the seeds' shape, in the seed's language, the same on every machine."""

from __future__ import annotations

import gc
import re
import time
from typing import Any

import pytest

from simia.amplification import seed_values
from simia.amplification.fresh_values import DOMAINS, choose_fresh_values, render_fresh_values
from simia.amplification.value_shapes import group_tools, learn_shapes
from simia.authoring.fresh_people import LOCALES, choose_person, load_places
from simia.pack import Pack
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

TEXT = {"type": "string"}
ENGLISH = "Hello, please look at my order, this is what I have for you: "
CHINESE = "你好，请帮我查一下我的订单，这是我的信息，谢谢："


def make_seed(said: str, schema: dict[str, Any] | None = None, **values: Any) -> Trajectory:
    """Return a seed whose user says `said` and all the values, and whose one call uses them."""
    properties = schema or {name: {} for name in values}
    tool = ToolSpec(name="look_up", parameters={"type": "object", "properties": properties})
    return Trajectory(
        tools=[tool],
        messages=[
            Message(role="user", content=f"{said} {' ; '.join(map(str, values.values()))}"),
            Message(role="assistant", calls=[ToolCall(id="1", name="look_up", arguments=values)]),
            Message(role="tool", content="{}", call_id="1"),
            Message(role="assistant", content="Done."),
        ],
    )


def test_five_thousand_items_name_as_many_people_addresses_and_orders() -> None:
    seeds = [
        make_seed(
            ENGLISH, name="Mei Wilson", email="mei.wilson@example.com", order_id="#W5918442", user_id="mei_wilson_1792"
        ),
        make_seed(ENGLISH, email="jo@example.com", order_id="ORD-20417"),
    ]
    chosen = [choose_fresh_values(seeds[number % 2], number) for number in range(5000)]
    assert len({values["email"] for values in chosen}) > 4950
    assert len({values["order_id"] for values in chosen}) > 4950
    assert len({values["user_id"] for values in chosen[::2]}) > 2450
    assert len({values["name"] for values in chosen[::2]}) > 2350
    assert all(re.fullmatch(r"#W\d{7}", values["order_id"]) for values in chosen[::2])
    assert all(re.fullmatch(r"ORD-\d{5}", values["order_id"]) for values in chosen[1::2])
    assert {values["email"].partition("@")[2] for values in chosen} == set(DOMAINS)


@pytest.mark.parametrize("language", ["en", "zh", "ja", "ko", "th", "ar", "es", "fr", "de", "pt", "vi"])
def test_name_address_and_user_id_are_one_persons(language: str) -> None:
    seed = make_seed(ENGLISH, name="Mei Wilson", email="mei_wilson@example.com", user_id="mei_wilson_1792")
    for number in range(50):
        values = choose_fresh_values(seed, number, language=language)
        first, last = values["name"].lower().split()
        assert re.fullmatch(rf"{first}_{last}_\d{{4}}", values["user_id"])
        assert first in values["email"] or f"{first[0]}_{last}" in values["email"]
        assert choose_person(language, number).latin.full == values["name"], "the seed's name has Latin letters"


def test_the_values_of_a_chinese_seed_are_chinese_and_its_addresses_ascii() -> None:
    seed = make_seed(CHINESE, name="王小明", email="wangxm@example.com", city="上海", zip="200040")
    values = choose_fresh_values(seed, 7)
    assert re.fullmatch("[\u4e00-\u9fff]{2,4}", values["name"])
    assert values["email"].isascii()
    assert values["city"] in {place.city for place in load_places()["zh"]}
    assert choose_fresh_values(seed, 7, language="en")["city"] in {place.city for place in load_places()["en"]}


def test_city_region_postcode_and_phone_belong_together() -> None:
    seed = make_seed(ENGLISH, city="Denver", state="CO", zip="80202", phone="+1 (303) 555-0142")
    places = {place.city: place for place in load_places()["en"]}
    for number in range(200):
        values = choose_fresh_values(seed, number)
        place = places[values["city"]]
        assert (values["state"], values["zip"][:3]) == (place.region, place.postcode[:3])
        assert re.fullmatch(rf"\+1 \({place.phone[:3]}\) 555-01\d\d", values["phone"])
    assert "city" not in choose_fresh_values(seed, 0, language="pl"), "no places are known"


def test_two_people_of_a_seed_stay_two() -> None:
    seed = make_seed(ENGLISH, to="anna.berg@example.com", cc="tom.hale@example.com", new_email="anna.berg@example.org")
    values = choose_fresh_values(seed, 5)
    person, other = choose_person("en", 5), choose_person("en", 5 + 500_009)
    assert person.handles[1] in values["to"]
    assert person.handles[1] in values["new_email"]
    assert values["to"] != values["new_email"]
    assert other.handles[1] in values["cc"]


def test_dates_move_together() -> None:
    seed = make_seed(ENGLISH, check_in="2025-05-01", check_out="2025-05-04", file="reports/rota-2025-09.xlsx")
    for number in range(30):
        values = choose_fresh_values(seed, number)
        days = [seed_values.DATE.fullmatch(values[name]) is not None for name in ("check_in", "check_out")]
        assert all(days)
        assert values["check_in"] < values["check_out"]
        assert re.fullmatch(r"reports/rota-2025-1[0-2]\.xlsx", values["file"])


def test_letters_of_a_code_change_where_the_seeds_say_so() -> None:
    codes = ["XEHM4B", "ZFA04Y", "QRK7PD"]
    seeds = [make_seed(ENGLISH, reservation_id=code, flight="HAT189", order="ORD-204") for code in codes]
    seeds += [make_seed(ENGLISH, flight="HAT021"), make_seed(ENGLISH, flight="HAT300")]
    shapes = learn_shapes(seeds)
    chosen = [choose_fresh_values(seeds[0], number, shapes=shapes) for number in range(200)]
    assert len({values["reservation_id"] for values in chosen}) > 195
    assert all(re.fullmatch("[A-Z0-9]{6}", values["reservation_id"]) for values in chosen)
    assert all(re.fullmatch(r"HAT\d{3}", values["flight"]) for values in chosen)
    alone = choose_fresh_values(seeds[0], 3)["reservation_id"]
    assert re.fullmatch(r"XEHM\dB", alone), "one value does not say which letters are fixed"


def test_digits_that_all_values_have_stay() -> None:
    seeds = [make_seed(ENGLISH, rental_id=f"KR-2026-{number}") for number in ("004417", "003990", "004102")]
    shapes = learn_shapes(seeds)
    chosen = {choose_fresh_values(seeds[0], number, shapes=shapes)["rental_id"] for number in range(100)}
    assert len(chosen) > 95
    assert all(re.fullmatch(r"KR-2026-\d{6}", value) for value in chosen)
    few = choose_fresh_values(seeds[0], 3, shapes=learn_shapes(seeds[:2]))["rental_id"]
    assert not few.startswith("KR-2026"), "two values do not say what is fixed"


def test_codes_are_learnt_from_seeds_with_the_same_tools() -> None:
    seeds = [make_seed(ENGLISH, rental_id=f"KR-{number}") for number in ("4417", "3990", "4102")]
    other = [
        make_seed(ENGLISH, {"rental_id": {"description": "رقم العقد"}}, rental_id=f"MB-{n}") for n in ("1188", "2299")
    ]
    shapes = learn_shapes([*seeds, *other])
    for number in range(20):
        assert re.fullmatch(r"KR-\d{4}", choose_fresh_values(seeds[0], number, shapes=shapes)["rental_id"])
        assert re.fullmatch(r"MB-\d{4}", choose_fresh_values(other[0], number, shapes=shapes)["rental_id"])
    more = seeds[0].model_copy(update={"tools": [*seeds[0].tools, ToolSpec(name="more")]})
    also = other[0].model_copy(update={"tools": [ToolSpec(name="more")]})
    one = group_tools([*seeds, *other, more, also])
    assert len(set(one.values())) == 2, "a seed with tools of two others joins them; the other schema stays apart"


def test_a_phone_number_without_a_place_keeps_its_kind() -> None:
    seed = make_seed(ENGLISH, phone="0556610982")
    numbers = {choose_fresh_values(seed, number, language="pl")["phone"] for number in range(50)}
    assert len(numbers) > 45
    assert all(re.fullmatch(r"05\d{8}", number) for number in numbers)


def test_only_values_that_the_given_tools_take() -> None:
    seed = make_seed(ENGLISH, email="anna.berg@example.com", order_id="ORD-20417")
    seed.tools += [
        ToolSpec(name="other", parameters={"type": "object", "properties": {"email": TEXT, "note": TEXT}}),
        ToolSpec(name="none"),
    ]
    assert choose_fresh_values(seed, 1).keys() == {"email", "order_id"}
    assert choose_fresh_values(seed, 1, ["other"]).keys() == {"email"}
    assert choose_fresh_values(seed, 1, ["none", "unknown"]) == {}
    assert choose_fresh_values(seed, 1, []) == {}


def test_values_obey_the_schema_or_are_left_out() -> None:
    schema = {
        "count": {"type": "integer", "minimum": 2, "maximum": 3},
        "email": {"type": "string", "pattern": r"@example\.com$"},
        "cabin": {"enum": ["row1", "row2"]},
        "bad": {"type": "nonsense"},
    }
    seed = make_seed(ENGLISH, schema, count=2, email="anna@example.com", cabin="row1", bad="X-12")
    for number in range(100):
        values = choose_fresh_values(seed, number)
        assert values.get("count", 3) == 3
        assert values.get("email", "@example.com").endswith("@example.com")
        assert values.get("cabin", "row2") == "row2"
        assert "bad" not in values


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("max_price", 50, r"\d\d"),
        ("amount", 19.99, r"\d+\.\d{1,2}"),
        ("year", 2019, r"20(16|17|18|20|21)"),
        ("guests", 2, "[134]"),
        ("uuid", "0b5c3f1e-8a2d-4c1b-9f00-1234567890ab", r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}"),
        ("phone", "0049 89 1234567", r"[\d ]+"),
        ("postcode", "D08 X7TG", r"[A-Z]\d\d [A-Z]\d[A-Z]{2}"),
        ("first_name", "Yusuf", r"[^\d]+"),
        ("card_number", "4111111111111111", r"\d{16}"),
        ("tracking", "12345678901234567890123456789012", r"\d{32}"),
        ("digest", "0b5c3f1e8a2d4c1b", r"[0-9a-f]{16}"),
        ("order_id", "20261319", r"\d{8}"),
        ("version", "3.12.4", r"\d\.\d\d\.\d"),
    ],
)
def test_a_value_keeps_its_shape(name: str, value: Any, form: str) -> None:
    for number in range(30):
        new = choose_fresh_values(make_seed(ENGLISH, **{name: value}), number)[name]
        assert new != value
        assert type(new) is type(value)
        assert re.fullmatch(form, str(new)), new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("product_name", "Blue Lamp"),
        ("query", "table lamp"),
        ("status", "delivered"),
        ("payment_id", True),
        ("name", "lamp"),
        ("birth_date", "19.03.1990"),
        ("travel_date", "03/19/2026"),
        ("travel_date", "19-3-2026"),
        ("start_date", "2026/03/19"),
        ("date", "20260319"),
        ("ip_address", "192.168.1.10"),
        ("network", "10.0.0.0/8"),
        ("phone", "+1 CALL-NOW"),
    ],
)
def test_free_text_names_of_things_dates_and_addresses_stay(name: str, value: Any) -> None:
    assert choose_fresh_values(make_seed(ENGLISH, **{name: value}), 3) == {}


def make_spoken_seed(said: str, **values: Any) -> Trajectory:
    """Return a seed whose user says `said` alone, and whose call uses the values."""
    seed = make_seed(said, **values)
    seed.messages[0].content = said
    return seed


@pytest.mark.parametrize(
    "said",
    [
        "Bitte am 19.03.2026 liefern.",
        "Bitte am 19. 3. 2026 liefern.",
        "请在2026年3月19日送货。",
        "２０２６年３月１９日にお願いします。",
        "Deliver it on March 19, 2026, please.",
        "Deliver it on the 19th of March, please.",
        "Deliver it on 3/19/2026, please.",
    ],
)
def test_a_date_varies_in_whatever_form_the_user_says_it(said: str) -> None:
    assert re.fullmatch(r"2026-\d\d-\d\d", choose_fresh_values(make_spoken_seed(said, day="2026-03-19"), 3)["day"])
    timed = choose_fresh_values(make_spoken_seed(said, start="2026-03-19T10:00"), 3)["start"]
    assert re.fullmatch(r"2026-\d\d-\d\dT10:00", timed)
    assert not choose_fresh_values(make_spoken_seed(said, day="2026-03-20"), 3)
    assert not choose_fresh_values(make_spoken_seed(said, days="2026-03-19/2026-03-20"), 3), "one of them is unsaid"


def test_values_said_in_full_width_characters_vary() -> None:
    seed = make_spoken_seed("予約番号はＲＳＶ－１２３４５、数は１２３です。", booking_id="RSV-12345", quantity=123)
    fresh = choose_fresh_values(seed, 3)
    assert re.fullmatch(r"RSV-\d{5}", fresh["booking_id"])
    assert fresh["booking_id"] != "RSV-12345"
    assert isinstance(fresh["quantity"], int)


def test_payment_ids_keep_their_words() -> None:
    seed = make_seed(ENGLISH, payment_method_id="credit_card_4421", name="Anna Berg")
    assert re.fullmatch(r"credit_card_\d{4}", choose_fresh_values(seed, 2)["payment_method_id"])


def test_an_items_values_are_its_own_and_recorded() -> None:
    """A change here changes the requests of every run: say so in the changelog."""
    seed = next(seed for seed in Pack.load("customer_service").seeds if seed.task_id == "cs-001")
    assert choose_fresh_values(seed, 3) == choose_fresh_values(seed, 3)
    assert choose_fresh_values(seed, 1_000_003) != choose_fresh_values(seed, 3)
    assert render_fresh_values(seed, 3) == 'Values: {"order_id":"ORD-23161","email":"a.striebitz85@mail.example"}'


@pytest.mark.parametrize("language", LOCALES)
def test_every_language_has_people_with_ascii_handles(language: str) -> None:
    people = [choose_person(language, number) for number in range(2000)]
    assert len({person.full for person in people}) > 1950
    assert all(re.fullmatch("[a-z]+", handle) for person in people for handle in person.handles)


def test_an_item_takes_less_than_a_millisecond_and_a_seed_is_not_kept_alive() -> None:
    seed = make_seed(ENGLISH, name="Mei Wilson", email="mei.wilson@example.com", order_id="#W5918442", zip="80202")
    choose_fresh_values(seed, 0)
    started = time.process_time()
    for number in range(500):
        choose_fresh_values(seed, number)
    assert (time.process_time() - started) / 500 < 0.001  # 40 µs on an idle machine
    key = id(seed)
    assert key in seed_values._FOUND
    del seed
    gc.collect()
    assert key not in seed_values._FOUND
