"""The tables of Pebbleford's back office, and how its amounts, days and words are compared.

Amounts are euros, rounded to cents; a table is an object of rows by their id.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict

POSTCODES = (
    ("DE", r"\d{5}", "5 digits"),
    ("FR", r"\d{5}", "5 digits"),
    ("IE", r"[A-Z]\d[0-9W] [A-Z0-9]{4}", "a letter, two digits, a space, four letters or digits"),
    ("NL", r"\d{4} [A-Z]{2}", "4 digits, a space, 2 capital letters"),
)


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Address(Row):
    street: str
    postcode: str
    city: str
    country: str


class Customer(Row):
    name: str
    email: str
    address: Address
    store_credit: float = 0.0


class Product(Row):
    name: str
    category: str
    price: float
    stock: int
    final_sale: bool = False
    details: str = ""


class Item(Row):
    product_id: str
    price: float
    final_sale: bool = False


class Order(Row):
    customer_id: str
    status: Literal["pending", "shipped", "delivered", "cancelled", "returning", "returned"]
    packed: bool = False
    ordered_on: date
    expected_on: date | None = None
    delivered_on: date | None = None
    items: dict[str, Item]
    shipping: float = 0.0
    voucher_id: str | None = None
    discount: float = 0.0
    ship_to: Address
    note: str | None = None


class Return(Row):
    order_id: str
    item_ids: list[str]
    reason: str
    fee: float
    refund: float
    refund_to: str
    status: Literal["waiting_for_parcel", "received", "cancelled"] = "waiting_for_parcel"
    requested_on: date
    send_by: date


class Exchange(Row):
    order_id: str
    item_id: str
    new_product_id: str
    price_difference: float
    status: Literal["waiting_for_parcel", "received"] = "waiting_for_parcel"
    send_by: date


class Refund(Row):
    order_id: str
    return_id: str | None = None
    amount: float
    refund_to: str
    status: Literal["on_its_way", "waiting_for_parcel", "paid", "cancelled"]
    requested_at: datetime
    refund_by: date | None = None
    paid_on: date | None = None


class Voucher(Row):
    customer_id: str
    value: float
    min_total: float
    valid_until: date
    used_for: str | None = None


class Ticket(Row):
    customer_id: str | None = None
    topic: str
    summary: str
    urgent: bool = False
    status: Literal["open", "answered", "closed"] = "open"
    opened_at: datetime


class State(Row):
    customers: dict[str, Customer] = {}
    products: dict[str, Product] = {}
    orders: dict[str, Order] = {}
    returns: dict[str, Return] = {}
    exchanges: dict[str, Exchange] = {}
    refunds: dict[str, Refund] = {}
    vouchers: dict[str, Voucher] = {}
    tickets: dict[str, Ticket] = {}


def address_fault(new: Address) -> str | None:
    """Why nothing can be sent there, in words for the agent."""
    if not new.street or not new.city:
        return "street and city are needed"
    for country, pattern, words in POSTCODES:
        if country == new.country:
            fits = re.fullmatch(pattern, new.postcode, re.ASCII)
            return None if fits else f"{new.postcode!r} is no postcode of {country}: {words} are expected"
    return f"we do not deliver to {new.country}: only to DE, FR, IE and NL"


def total(order: Order) -> float:
    return euros(sum(item.price for item in order.items.values()) + order.shipping - order.discount)


def euros(amount: float) -> float:
    """Rounded to cents, and an integer where it is one."""
    amount = round(amount, 2)
    return int(amount) if amount == int(amount) else amount


def iso(day: date) -> str:
    return day.isoformat()


def same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def plain(text: str) -> str:
    """Lower case, without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


def stem(word: str) -> str:
    """Without the plural s, so that "lamps" finds a lamp."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def working_days(start: date, count: int) -> date:
    day = start
    while count:
        day += timedelta(days=1)
        count -= day.weekday() < 5
    return day
