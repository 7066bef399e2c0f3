"""Orders and their events, each pair in one transaction: with psycopg and plain SQL, nothing else."""

import os

import psycopg
from psycopg.types.json import Json


class Refused(Exception):
    """The order is not wanted after all."""


def place_order(db, order, total):
    """The order and its event are there together, or neither is."""
    payload = {"order": order, "total": total, "note": "für Zoë ☕"}
    with db.transaction():
        db.execute("insert into orders (id, total) values (%s, %s)", (order, total))
        db.execute(
            "insert into postrider.event (topic, type, key, payload, headers)"
            " values ('order', 'order.placed', %s, %s, %s)",
            (order, Json(payload), Json({"shop": "python"})),
        )
        if total <= 0:
            raise Refused(order)


def send_receipt(db, order, receipt):
    """May be repeated: the event is emitted once for its idempotency key, and its id is returned each time."""
    emitted = db.execute(
        "select postrider.emit_bytes('order', 'order.receipt', %s, %s, idempotency_key => %s)",
        (order, receipt, f"receipt-{order}"),
    )
    return emitted.fetchone()[0]


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
        db.execute("create table if not exists orders (id text primary key, total int not null)")
        place_order(db, "python-1", 1999)
        try:
            place_order(db, "python-2", 0)
        except Refused as refused:
            print(f"refused {refused}")
        receipt = bytes(range(256))
        assert send_receipt(db, "python-1", receipt) == send_receipt(db, "python-1", receipt)


main()
