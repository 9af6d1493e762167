"""Pebbleford's back office: customers, products, orders, returns, exchanges, refunds, vouchers and tickets.

The tools check what a real back office checks (who asks, the order's status, 30 days, final sale, stock, one return per
order); what only a conversation can show, such as the customer's yes, is left to the policy. A refusal says what would do.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

from pebbleford import (
    Address,
    Customer,
    Exchange,
    Item,
    Order,
    Product,
    Refund,
    Return,
    State,
    Ticket,
    address_fault,
    euros,
    iso,
    plain,
    same,
    stem,
    total,
    working_days,
)

from simia.kit import ToolError, Tools, read, write

LABEL_FEE = 4.5
RETURN_DAYS = 30
SEND_DAYS = 14
CARD_DAYS = 5  # working days until a refund is on the card
NOTE_LENGTH = 200
WAITS = (("safety", 10), ("legal", 60), ("complaint", 20), ("other", 30))  # minutes; an urgent matter waits 5


class Shop(Tools[State]):
    """The tools of the agent."""

    State = State

    # -- look-ups -------------------------------------------------------------------------------------------------

    @read
    def find_customer(self, email: str, postcode: str) -> dict[str, Any]:
        for customer_id, row in self.state.customers.items():
            if same(row.email, email) and same(row.address.postcode, postcode):
                found = row.model_dump()
                return {"customer_id": customer_id, **found, "store_credit": euros(row.store_credit)}
        raise ToolError("no customer with this email and postcode")

    @read
    def list_orders(self, customer_id: str, email: str, status: str | None = None) -> dict[str, Any]:
        self._customer(customer_id, email)
        rows = [
            {"order_id": key, "status": o.status, "ordered_on": iso(o.ordered_on), "total": total(o)}
            for key, o in sorted(self.state.orders.items())
            if o.customer_id == customer_id and status in (None, o.status)
        ]
        return {"customer_id": customer_id, "orders": rows}

    @read
    def get_order(self, order_id: str, email: str) -> dict[str, Any]:
        order = self._order(order_id, email)
        found: dict[str, Any] = {"order_id": order_id, "status": order.status, "ordered_on": iso(order.ordered_on)}
        if order.status in ("pending", "shipped") and order.expected_on:
            found["expected_on"] = iso(order.expected_on)
        if order.delivered_on:
            found["delivered_on"] = iso(order.delivered_on)
        found["items"] = [
            {
                "item_id": key,
                "product_id": item.product_id,
                "name": self.state.products[item.product_id].name,
                "price": euros(item.price),
                "final_sale": item.final_sale,
            }
            for key, item in sorted(order.items.items())
        ]
        found["shipping"] = euros(order.shipping)
        if order.discount:
            found |= {"voucher_id": order.voucher_id, "discount": euros(order.discount)}
        found |= {"total": total(order), "ship_to": order.ship_to.model_dump()}
        if order.note:
            found["note"] = order.note
        return found

    @read
    def get_product(self, product_id: str) -> dict[str, Any]:
        row = self._product(product_id)
        return {"product_id": product_id, **row.model_dump(), "price": euros(row.price)}

    @read
    def search_products(
        self, query: str, max_price: float | None = None, in_stock: bool = False, limit: int = 10
    ) -> dict[str, Any]:
        words = [stem(word) for word in re.findall(r"\w+", plain(query))]
        if not words:
            raise ToolError("the query has no words: give a word of the product's name")
        found = [
            {"product_id": key, "name": row.name, "price": euros(row.price)}
            for key, row in sorted(self.state.products.items())
            if all(word in plain(row.name) for word in words)
            and (max_price is None or row.price <= max_price)
            and (row.stock > 0 or not in_stock)
        ]
        return {"found": len(found), "products": found[: int(limit)]}

    @read
    def get_refund(self, order_id: str, email: str) -> dict[str, Any]:
        self._order(order_id, email)
        rows = [r for r in self.state.refunds.values() if r.order_id == order_id and r.status != "cancelled"]
        if not rows:
            raise ToolError(f"order {order_id} has no refund")
        row = max(rows, key=lambda r: r.requested_at)
        found: dict[str, Any] = {"order_id": order_id, "amount": euros(row.amount), "refund_to": row.refund_to}
        found |= {"status": row.status, "requested_on": iso(row.requested_at.date())}
        if row.paid_on:
            found["paid_on"] = iso(row.paid_on)
        elif row.refund_by:
            found["refund_by"] = iso(row.refund_by)
        return found

    @read
    def list_returns(self, customer_id: str, email: str) -> dict[str, Any]:
        self._customer(customer_id, email)
        rows = [
            {"return_id": key, "order_id": r.order_id, "status": r.status, "refund": euros(r.refund)}
            for key, r in sorted(self.state.returns.items())
            if self.state.orders[r.order_id].customer_id == customer_id
        ]
        return {"customer_id": customer_id, "returns": rows}

    @read
    def get_return(self, return_id: str, email: str) -> dict[str, Any]:
        row = self.state.returns.get(return_id)
        if row is None or not same(self._owner(row.order_id).email, email):
            raise ToolError(f"no return {return_id} under {email}")
        found = row.model_dump(mode="json")
        return {"return_id": return_id, **found, "fee": euros(row.fee), "refund": euros(row.refund)}

    @read
    def get_voucher(self, voucher_id: str, email: str) -> dict[str, Any]:
        row = self.state.vouchers.get(voucher_id)
        if row is None or not same(self.state.customers[row.customer_id].email, email):
            raise ToolError(f"no voucher {voucher_id} under {email}")
        expired = row.valid_until < self.now.date()
        found: dict[str, Any] = {
            "voucher_id": voucher_id,
            "value": euros(row.value),
            "min_total": euros(row.min_total),
            "valid_until": iso(row.valid_until),
            "status": "used" if row.used_for else "expired" if expired else "unused",
        }
        return found | ({"used_for": row.used_for} if row.used_for else {})

    @read
    def get_ticket(self, ticket_id: str, email: str) -> dict[str, Any]:
        row = self.state.tickets.get(ticket_id)
        if row is None or row.customer_id is None or not same(self.state.customers[row.customer_id].email, email):
            raise ToolError(f"no ticket {ticket_id} under {email}")
        return {
            "ticket_id": ticket_id,
            "queue": row.topic,
            "status": row.status,
            "opened_on": iso(row.opened_at.date()),
            "summary": row.summary,
        }

    # -- pending orders -------------------------------------------------------------------------------------------

    @write
    def cancel_order(self, order_id: str, reason: str) -> dict[str, Any]:
        order = self._pending(order_id, "cancelled")
        order.status = "cancelled"
        for item in order.items.values():
            self.state.products[item.product_id].stock += 1
        if order.voucher_id:
            self.state.vouchers[order.voucher_id].used_for = None
        return {"order_id": order_id, "status": order.status, **self._to_card(order_id, total(order))}

    @write
    def change_address(self, order_id: str, address: dict[str, str]) -> dict[str, Any]:
        order = self._pending(order_id, "changed")
        new = Address(**{key: value.strip() for key, value in address.items()})
        fault = address_fault(new)
        if fault:
            raise ToolError(fault)
        order.ship_to = new
        return {"order_id": order_id, "status": order.status, "ship_to": new.model_dump()}

    @write
    def remove_item(self, order_id: str, item_id: str) -> dict[str, Any]:
        order = self._pending(order_id, "changed")
        item = self._item(order_id, item_id)
        if len(order.items) == 1:
            raise ToolError(f"{item_id} is the only item of order {order_id}: cancel the order instead")
        left = sum(i.price for i in order.items.values()) - item.price
        if order.voucher_id and round(left, 2) < self.state.vouchers[order.voucher_id].min_total:
            raise ToolError(
                f"without {item_id} order {order_id} is below the least total of voucher {order.voucher_id}"
            )
        del order.items[item_id]
        self.state.products[item.product_id].stock += 1
        return {"order_id": order_id, "item_id": item_id, "total": total(order), **self._to_card(order_id, item.price)}

    @write
    def add_note(self, order_id: str, note: str) -> dict[str, Any]:
        order = self._pending(order_id, "changed")
        note = " ".join(note.split())
        if not note or len(note) > NOTE_LENGTH:
            raise ToolError(f"a note has 1 to {NOTE_LENGTH} characters")
        order.note = note
        return {"order_id": order_id, "note": note}

    @write
    def apply_voucher(self, order_id: str, voucher_id: str) -> dict[str, Any]:
        order = self._pending(order_id, "changed")
        row = self.state.vouchers.get(voucher_id)
        if row is None or row.customer_id != order.customer_id:
            raise ToolError(f"no voucher {voucher_id} on the account of order {order_id}")
        if order.voucher_id:
            raise ToolError(f"order {order_id} has voucher {order.voucher_id} already: only one per order")
        if row.used_for:
            raise ToolError(f"voucher {voucher_id} was used for order {row.used_for}")
        if row.valid_until < self.now.date():
            raise ToolError(f"voucher {voucher_id} expired on {row.valid_until}")
        if round(sum(item.price for item in order.items.values()), 2) < row.min_total:
            raise ToolError(f"voucher {voucher_id} needs items for {row.min_total:.2f} or more")
        order.voucher_id, order.discount, row.used_for = voucher_id, row.value, order_id
        found = {"order_id": order_id, "voucher_id": voucher_id, "total": total(order)}
        return found | self._to_card(order_id, row.value)

    # -- delivered orders -----------------------------------------------------------------------------------------

    @write
    def return_items(self, order_id: str, item_ids: list[str], reason: str, refund_to: str) -> dict[str, Any]:
        order = self._delivered(order_id)
        if len(set(item_ids)) < len(item_ids):
            raise ToolError("an item stands twice in item_ids")
        items = {item_id: self._item(order_id, item_id) for item_id in item_ids}
        kept = next((key for key, item in items.items() if item.final_sale and reason == "changed_mind"), None)
        if kept:
            raise ToolError(f"item {kept} is final sale: it can be returned only if faulty or wrong")
        price = round(sum(item.price for item in items.values()), 2)
        fee = min(LABEL_FEE, price) if reason == "changed_mind" and refund_to == "card" else 0.0
        refund = round(price - fee, 2)
        today = self.now.date()
        return_id = self.new_id("RET-", 3, taken=self.state.returns)
        send_by = today + timedelta(days=SEND_DAYS)
        self.state.returns[return_id] = Return(
            order_id=order_id,
            item_ids=list(item_ids),
            reason=reason,
            fee=fee,
            refund=refund,
            refund_to=refund_to,
            requested_on=today,
            send_by=send_by,
        )
        self._refund(order_id, refund, refund_to, "waiting_for_parcel", return_id)
        order.status = "returning"
        found: dict[str, Any] = {"return_id": return_id, "order_id": order_id, "item_ids": list(item_ids)}
        return found | {"fee": euros(fee), "refund": euros(refund), "refund_to": refund_to, "send_by": iso(send_by)}

    @write
    def cancel_return(self, return_id: str) -> dict[str, Any]:
        row = self.state.returns.get(return_id)
        if row is None:
            raise ToolError(f"there is no return {return_id}")
        if row.status != "waiting_for_parcel":
            raise ToolError(f"return {return_id} is {row.status} and cannot be cancelled")
        row.status = "cancelled"
        for refund in self.state.refunds.values():
            if refund.return_id == return_id:
                refund.status = "cancelled"
        order = self.state.orders[row.order_id]
        order.status = "delivered"
        return {"return_id": return_id, "status": row.status, "order_id": row.order_id, "order_status": order.status}

    @write
    def exchange_item(self, order_id: str, item_id: str, new_product_id: str) -> dict[str, Any]:
        order = self._delivered(order_id)
        item = self._item(order_id, item_id)
        if item.final_sale:
            raise ToolError(f"item {item_id} is final sale and cannot be exchanged")
        new = self._product(new_product_id)
        if new.stock < 1:
            raise ToolError(f"product {new_product_id} is out of stock")
        new.stock -= 1
        order.status = "returning"
        difference = round(new.price - item.price, 2)
        send_by = self.now.date() + timedelta(days=SEND_DAYS)
        self.state.exchanges[self.new_id("EXC-", 3, taken=self.state.exchanges)] = Exchange(
            order_id=order_id,
            item_id=item_id,
            new_product_id=new_product_id,
            price_difference=difference,
            send_by=send_by,
        )
        found: dict[str, Any] = {"order_id": order_id, "item_id": item_id, "new_product_id": new_product_id}
        return found | {"new_name": new.name, "price_difference": euros(difference), "send_by": iso(send_by)}

    @write
    def update_email(self, customer_id: str, email: str, new_email: str) -> dict[str, Any]:
        customer = self._customer(customer_id, email)
        new_email = new_email.strip().lower()
        if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s.]+", new_email):
            raise ToolError(f"{new_email!r} is no email")
        if any(same(row.email, new_email) for row in self.state.customers.values()):
            raise ToolError(f"an account with {new_email} exists already")
        customer.email = new_email
        return {"customer_id": customer_id, "email": new_email}

    @write
    def transfer_to_person(self, topic: str, summary: str, urgent: bool) -> dict[str, Any]:
        if not summary.strip():
            raise ToolError("a summary is needed: say what it is about")
        ticket_id = self.new_id("TCK-", 4, taken=self.state.tickets)
        self.state.tickets[ticket_id] = Ticket(topic=topic, summary=summary, urgent=urgent, opened_at=self.now)
        return {"ticket_id": ticket_id, "queue": topic, "wait_minutes": 5 if urgent else dict(WAITS)[topic]}

    # -- what several tools check ---------------------------------------------------------------------------------

    def _customer(self, customer_id: str, email: str) -> Customer:
        row = self.state.customers.get(customer_id)
        if row is None or not same(row.email, email):
            raise ToolError(f"no customer {customer_id} with {email}")
        return row

    def _owner(self, order_id: str) -> Customer:
        return self.state.customers[self.state.orders[order_id].customer_id]

    def _order(self, order_id: str, email: str) -> Order:
        if order_id not in self.state.orders or not same(self._owner(order_id).email, email):
            raise ToolError(f"no order {order_id} under {email}")
        return self.state.orders[order_id]

    def _known(self, order_id: str) -> Order:
        if order_id not in self.state.orders:
            raise ToolError(f"there is no order {order_id}")
        return self.state.orders[order_id]

    def _pending(self, order_id: str, what: str) -> Order:
        order = self._known(order_id)
        if order.status != "pending":
            raise ToolError(f"order {order_id} is {order.status} and cannot be {what}: only pending orders can")
        if order.packed:
            raise ToolError(f"order {order_id} is already packed and cannot be {what}")
        return order

    def _delivered(self, order_id: str) -> Order:
        order = self._known(order_id)
        if order.status in ("returning", "returned"):
            raise ToolError(f"order {order_id} has a return or an exchange already: only one per order")
        if order.status != "delivered" or order.delivered_on is None:
            raise ToolError(f"order {order_id} is {order.status}: only delivered orders can be returned or exchanged")
        last = order.delivered_on + timedelta(days=RETURN_DAYS)
        if self.now.date() > last:
            raise ToolError(
                f"order {order_id} was delivered on {order.delivered_on}: its {RETURN_DAYS} days ended on {last}"
            )
        return order

    def _item(self, order_id: str, item_id: str) -> Item:
        items = self.state.orders[order_id].items
        if item_id not in items:
            raise ToolError(f"order {order_id} has no item {item_id}: it has {', '.join(sorted(items))}")
        return items[item_id]

    def _product(self, product_id: str) -> Product:
        row = self.state.products.get(product_id)
        if row is None:
            raise ToolError(f"there is no product {product_id}")
        return row

    def _to_card(self, order_id: str, amount: float) -> dict[str, Any]:
        due = self._refund(order_id, amount, "card", "on_its_way", None)
        return {"refund": euros(amount), "refund_to": "card", "refund_by": iso(due)}

    def _refund(self, order_id: str, amount: float, to: str, status: Any, return_id: str | None) -> date:
        due = working_days(self.now.date(), CARD_DAYS)
        self.state.refunds[self.new_id("REF-", 4, taken=self.state.refunds)] = Refund(
            order_id=order_id,
            return_id=return_id,
            amount=amount,
            refund_to=to,
            status=status,
            requested_at=self.now,
            refund_by=due if status == "on_its_way" else None,
        )
        return due
