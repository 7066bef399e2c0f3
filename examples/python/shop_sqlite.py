"""Orders and their events, each pair in one transaction: with Python's own SQLite, nothing else."""

import json
import os
import sqlite3
from contextlib import contextmanager


class Refused(Exception):
    """The order is not wanted after all."""


@contextmanager
def transaction(db):
    """Begins as a writer: one that begins by reading fails if another has written in between."""
    db.execute("begin immediate")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def place_order(db, order, total):
    """The order and its event are there together, or neither is."""
    payload = json.dumps({"order": order, "total": total, "note": "für Zoë ☕"}, ensure_ascii=False)
    with transaction(db):
        db.execute("insert into orders (id, total) values (?, ?)", (order, total))
        db.execute(
            "insert into postrider_event (topic, type, key, payload, headers)"
            " values ('order', 'order.placed', ?, ?, ?)",
            (order, payload, json.dumps({"shop": "python"})),
        )
        if total <= 0:
            raise Refused(order)


def send_receipt(db, order, receipt):
    """May be repeated: the event is emitted once for its idempotency key."""
    key = f"receipt-{order}"
    with transaction(db):
        db.execute("insert into postrider_idempotency (key) values (?) on conflict do nothing", (key,))
        db.execute(
            "insert into postrider_event (topic, type, key, payload)"
            " select 'order', 'order.receipt', ?, ? where changes() = 1",
            (order, receipt),
        )
        db.execute(
            "update postrider_idempotency set event_id = last_insert_rowid() where key = ? and event_id is null",
            (key,),
        )


def main():
    # Without isolation_level the module begins no transactions of its own.
    db = sqlite3.connect(os.environ["DATABASE"], timeout=30, isolation_level=None)
    db.execute("create table if not exists orders (id text primary key, total integer not null)")
    place_order(db, "python-1", 1999)
    try:
        place_order(db, "python-2", 0)
    except Refused as refused:
        print(f"refused {refused}")
    for _ in range(2):
        send_receipt(db, "python-1", bytes(range(256)))
    db.close()


main()
