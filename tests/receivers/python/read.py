"""Reads what Postrider has sent, each message a line of JSON, with the libraries that receivers use; says what they make of it."""

import base64
import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, from_rabbitmq_event
from cloudevents.core.formats.json import JSONFormat
from opentelemetry.baggage import get_all
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from standardwebhooks.webhooks import Webhook


def told(event):
    data = event.get_data()
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    return {"attributes": attributes, "data": base64.b64encode(data).decode() if isinstance(data, bytes) else data}


def read(message):
    headers = {name: value for name, value in message["headers"]}
    body = base64.b64decode(message["body"])
    match message["as"]:
        case "http":
            return told(from_http_event(HTTPMessage(headers, body)))
        case "batch":
            return [told(JSONFormat().read(None, json.dumps(event))) for event in json.loads(body)]
        case "kafka":
            values = {name: value.encode() for name, value in headers.items()}
            return told(from_kafka_event(KafkaMessage(values, message.get("key"), body)))
        case "rabbitmq":
            return told(from_rabbitmq_event(RabbitMQMessage(headers, message.get("content_type"), body)))
        case "signed":
            Webhook(message["secret"]).verify(body, headers)
            return "verified"
        case "baggage":
            return dict(get_all(W3CBaggagePropagator().extract(headers)))


for line in sys.stdin:
    try:
        answer = {"read": read(json.loads(line))}
    except Exception as error:  # The test is to see it.
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
