// Reads what Postrider has sent, each message a line of JSON, with the libraries that receivers use; says what they make of it.

import { createInterface } from "node:readline";
import { ROOT_CONTEXT, defaultTextMapGetter, propagation } from "@opentelemetry/api";
import { W3CBaggagePropagator } from "@opentelemetry/core";
import { HTTP, Kafka } from "cloudevents";
import { Webhook } from "standardwebhooks";

function told(event) {
  const { data, data_base64: bytes, ...attributes } = event.toJSON ? event.toJSON() : event;
  const texts = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return { attributes: Object.fromEntries(texts.map(([name, value]) => [name, String(value)])), data: bytes ?? data };
}

function read(message) {
  const headers = Object.fromEntries(message.headers);
  const body = Buffer.from(message.body, "base64");
  switch (message.as) {
    case "http":
      return told(HTTP.toEvent({ headers, body: body.toString() }));
    case "batch":
      return HTTP.toEvent({ headers, body: body.toString() }).map(told);
    case "kafka":
      return told(Kafka.toEvent({ headers, key: message.key, value: body.toString(), body: body.toString() }));
    case "signed":
      new Webhook(message.secret).verify(body.toString(), headers);
      return "verified";
    case "baggage": {
      const context = new W3CBaggagePropagator().extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
      const entries = propagation.getBaggage(context)?.getAllEntries() ?? [];
      return Object.fromEntries(entries.map(([name, { value }]) => [name, value]));
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { read: read(JSON.parse(line)) };
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify(answer));
}
