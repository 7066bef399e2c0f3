// Reads what Postrider has sent, each message a line of JSON, with the libraries that receivers use; says what they make of it.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.cloudevents.CloudEvent;
import io.cloudevents.kafka.CloudEventDeserializer;
import io.debezium.transforms.outbox.EventRouter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

public class Read {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line; (line = input.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode message = JSON.readTree(line);
                answer.set("read", message.get("as").asText().equals("row") ? routed(message) : event(message));
            } catch (Exception error) {
                answer.put("error", error.toString());
            }
            output.println(JSON.writeValueAsString(answer));
        }
    }

    /** A record of Kafka as a CloudEvent. */
    private static JsonNode event(JsonNode message) {
        var headers = new RecordHeaders();
        for (JsonNode header : message.get("headers")) {
            headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
        }
        byte[] body = Base64.getDecoder().decode(message.get("body").asText());
        CloudEvent event;
        try (var reader = new CloudEventDeserializer()) {
            event = reader.deserialize("topic", headers, body);
        }
        ObjectNode told = JSON.createObjectNode();
        ObjectNode attributes = told.putObject("attributes");
        for (String name : event.getAttributeNames()) {
            attributes.put(name, String.valueOf(event.getAttribute(name)));
        }
        for (String name : event.getExtensionNames()) {
            attributes.put(name, String.valueOf(event.getExtension(name)));
        }
        told.put("data", event.getData() == null ? null : new String(event.getData().toBytes(), StandardCharsets.UTF_8));
        return told;
    }

    /** What Debezium's router makes of an insert into an outbox table. */
    private static JsonNode routed(JsonNode row) {
        Schema columns = SchemaBuilder.struct().name("shop.outbox.Value")
            .field("id", SchemaBuilder.string().name("io.debezium.data.Uuid").build())
            .field("aggregatetype", Schema.STRING_SCHEMA).field("aggregateid", Schema.STRING_SCHEMA)
            .field("type", Schema.STRING_SCHEMA).field("payload", Schema.STRING_SCHEMA).build();
        Schema change = SchemaBuilder.struct().name("shop.outbox.Envelope")
            .field("before", SchemaBuilder.struct().optional().build()).field("after", columns)
            .field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .field("source", SchemaBuilder.struct().optional().build()).build();
        Struct after = new Struct(columns);
        for (String column : new String[] {"id", "aggregatetype", "aggregateid", "type", "payload"}) {
            after.put(column, row.get(column).asText());
        }
        Struct value = new Struct(change).put("after", after).put("op", "c").put("ts_ms", 1L);
        try (var router = new EventRouter<SourceRecord>()) {
            router.configure(Map.of("table.fields.additional.placement", "type:header:eventType"));
            SourceRecord record =
                router.apply(new SourceRecord(Map.of(), Map.of(), "shop.outbox", 0, null, null, change, value));
            ObjectNode told = JSON.createObjectNode();
            told.put("topic", record.topic()).put("key", String.valueOf(record.key()));
            told.put("value", String.valueOf(record.value()));
            ObjectNode headers = told.putObject("headers");
            record.headers().forEach(header -> headers.put(header.key(), String.valueOf(header.value())));
            return told;
        }
    }
}
