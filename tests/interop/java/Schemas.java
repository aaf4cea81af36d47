import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Writes Avro records to `views`, whose schema a registry is told; or reads them with what the registry knows.
 *
 * <p>Arguments: bootstrap servers, URL of the registry, "write" or "read", number of records. It prints each record that
 * it reads.
 */
public final class Schemas {
    private static final Schema VIEW = SchemaBuilder.record("View").namespace("barnabas").fields()
            .requiredString("page").requiredLong("number").endRecord();

    private Schemas() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("apicurio.registry.url", arguments[1]);
        settings.put("apicurio.registry.auto-register", "true");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "io.apicurio.registry.serde.avro.AvroKafkaSerializer");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "io.apicurio.registry.serde.avro.AvroKafkaDeserializer");
        settings.put("auto.offset.reset", "earliest");
        int count = Integer.parseInt(arguments[3]);
        if (arguments[2].equals("write")) {
            write(settings, count);
        } else {
            read(settings, count);
        }
    }

    private static void write(Properties settings, int count) throws Exception {
        try (KafkaProducer<String, GenericRecord> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < count; number++) {
                GenericRecord view = new GenericData.Record(VIEW);
                view.put("page", "page-" + number % 3);
                view.put("number", (long) number);
                producer.send(new ProducerRecord<>("views", view)).get();
            }
        }
    }

    private static void read(Properties settings, int count) {
        int left = count;
        try (KafkaConsumer<String, GenericRecord> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(new TopicPartition("views", 0)));
            while (left > 0) {
                for (ConsumerRecord<String, GenericRecord> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println("read " + record.value());
                    left--;
                }
            }
        }
    }
}
