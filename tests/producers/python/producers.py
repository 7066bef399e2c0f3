"""Every case with every library for Python: as a text, and as a value that the library writes as JSON."""

import asyncio
import json
import os
import sqlite3
from pathlib import Path

import asyncpg
import django
import psycopg
import sqlalchemy as sa
from django.conf import settings
from django.db import connection, models
from psycopg.types.json import Json, Jsonb
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

CASES = json.loads((Path(__file__).parent.parent / "cases.json").read_text())
URL = os.environ.get("DATABASE_URL")
INSERT = "insert into postrider.event (topic, type, key, payload) values"


def with_psycopg():
    with psycopg.connect(URL, autocommit=True) as db:
        for key, case in enumerate(CASES):
            value = json.loads(case)
            db.execute(f"{INSERT} ('psycopg.insert', 'made', %s, %s)", (str(key), case))
            db.execute(f"{INSERT} ('psycopg.insert-value', 'made', %s, %s)", (str(key), Json(value)))
            db.execute("select postrider.emit('psycopg.emit', 'made', %s, %s)", (key, case))
            db.execute("select postrider.emit('psycopg.emit-value', 'made', %s, %s)", (key, Jsonb(value)))


async def with_asyncpg():
    db = await asyncpg.connect(URL)
    for key, case in enumerate(CASES):
        await db.execute(f"{INSERT} ('asyncpg.insert', 'made', $1, $2)", str(key), case)
        await db.execute("select postrider.emit('asyncpg.emit', 'made', $1, $2)", str(key), case)
        await db.execute("select postrider.emit('asyncpg.emit-value', 'made', $1::int, $2::jsonb)", key, case)
    await db.close()


class Base(DeclarativeBase):
    pass


class Event(Base):
    __tablename__ = "event"
    __table_args__ = {"schema": "postrider"}
    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=True), primary_key=True)
    topic: Mapped[str]
    key: Mapped[str]
    payload: Mapped[dict] = mapped_column(sa.JSON)
    headers: Mapped[dict | None] = mapped_column(sa.JSON)


def with_sqlalchemy():
    engine = sa.create_engine(URL.replace("postgres://", "postgresql+psycopg://"))
    emit = sa.text("select postrider.emit('sqlalchemy.emit', 'made', :key, :payload)")
    insert = sa.text(f"{INSERT} ('sqlalchemy.insert', 'made', :key, :payload)")
    with Session(engine) as session, session.begin():
        for key, case in enumerate(CASES):
            # `headers` that are given as None are written as JSON's null.
            session.add(
                Event(topic="sqlalchemy.insert-value", key=str(key), payload=json.loads(case), headers=None)
            )
            session.flush()
            session.execute(insert, {"key": str(key), "payload": case})
            session.execute(emit, {"key": key, "payload": case})
    engine.dispose()


def with_django():
    parts = sa.make_url(URL)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": parts.host,
                "PORT": parts.port,
                "USER": parts.username,
                "NAME": parts.database,
            }
        }
    )
    django.setup()

    class DjangoEvent(models.Model):
        id = models.BigAutoField(primary_key=True)
        topic = models.TextField()
        key = models.TextField(null=True)
        payload = models.JSONField(null=True)
        headers = models.JSONField(null=True)

        class Meta:
            app_label = "shop"
            managed = False
            db_table = 'postrider"."event'

    for key, case in enumerate(CASES):
        DjangoEvent.objects.create(topic="django.insert-value", key=key, payload=json.loads(case))
        with connection.cursor() as cursor:
            cursor.execute(f"{INSERT} ('django.insert', 'made', %s, %s)", [str(key), case])
            cursor.execute("select postrider.emit('django.emit', 'made', %s, %s)", [key, case])
            cursor.execute(
                "select postrider.emit('django.emit-value', 'made', %s, %s)", [key, Jsonb(json.loads(case))]
            )
    connection.close()


def with_sqlite3():
    db = sqlite3.connect(os.environ["DATABASE"], timeout=30, isolation_level=None)
    for key, case in enumerate(CASES):
        db.execute(
            "insert into postrider_event (topic, key, payload) values ('sqlite3.insert', ?, ?)", (key, case)
        )
    db.close()


if "DATABASE" in os.environ:
    with_sqlite3()
else:
    with_psycopg()
    asyncio.run(with_asyncpg())
    with_sqlalchemy()
    with_django()
