// Apache Kafka's own client, for measurements that Kafka's perf tools lack: `consume` while another process produces, and
// `latency` in an open loop (from the due time of a record). The flags and the report are those of `barnabas perf`. The
// program assigns partitions instead of subscribing, so that it spends no time on joining a group.

import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaPerf {
    static final double IDLE_LIMIT_S = 30;
    static final double SAMPLE_S = 0.25;
    static final Map<String, String> flags = new HashMap<>();
    static int records, size;
    static String topic;
    static long startedNs, startedCpuNs, sampledNs;
    static final StringBuilder samples = new StringBuilder();

    public static void main(String[] arguments) throws Exception {
        for (int i = 1; i + 1 < arguments.length; i += 2) flags.put(arguments[i], arguments[i + 1]);
        records = Integer.parseInt(flags.get("--records"));
        size = Integer.parseInt(flags.getOrDefault("--size", "100"));
        topic = flags.get("--topic");
        switch (arguments[0]) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "latency" -> latency();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", flags.get("--bootstrap"));
        settings.put("acks", flags.getOrDefault("--acks", "1"));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        if (flags.containsKey("--fetch-bytes")) settings.put("max.partition.fetch.bytes", flags.get("--fetch-bytes"));
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer() {
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partitions = new ArrayList<>();
        if (flags.containsKey("--only"))
            for (String number : flags.get("--only").split(","))
                partitions.add(new TopicPartition(topic, Integer.parseInt(number)));
        else
            for (int i = 0; i < Integer.parseInt(flags.getOrDefault("--partitions", "6")); i++)
                partitions.add(new TopicPartition(topic, i));
        consumer.assign(partitions);
        if (flags.containsKey("--only"))  // all that is in them
            records = (int) consumer.endOffsets(partitions).values().stream().mapToLong(Long::longValue).sum();
        return consumer;
    }

    static void produce() {
        Properties settings = settings();
        settings.put("batch.size", "131072");
        settings.put("linger.ms", "10");
        settings.put("buffer.memory", "67108864");
        byte[] payload = new byte[size];
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            producer.partitionsFor(topic);
            begin();
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(topic, payload));
                if (i % 1_000 == 0) sample(i);
            }
            producer.flush();
            report("");
        }
    }

    static void consume() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            int got = 0;
            long last = System.nanoTime();
            while (got < records) {
                int count = consumer.poll(Duration.ofMillis(100)).count();
                if (count > 0 && got == 0) begin();
                if (count > 0) last = System.nanoTime();
                requireProgress(last);
                got += count;
                sample(got);
            }
            report("");
        }
    }

    static void latency() throws Exception {
        int warmUp = (int) Double.parseDouble(flags.get("--rate"));  // the records of a second
        records += warmUp;
        double[] millis = new double[records];
        int got = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.poll(Duration.ofMillis(500));  // connects before the first record is sent
            Thread sender = new Thread(KafkaPerf::sendPaced);
            sender.start();
            begin();
            long last = System.nanoTime();
            while (got < records) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                long now = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> each : polled)
                    millis[got++] = (now - ByteBuffer.wrap(each.value()).getLong()) / 1e6;
                if (!polled.isEmpty()) last = now;
                requireProgress(last);
            }
            sender.join();
        }
        report(percentiles(Arrays.copyOfRange(millis, warmUp, records)));
    }

    static void sendPaced() {
        double rate = Double.parseDouble(flags.get("--rate"));
        Properties settings = settings();
        settings.put("linger.ms", "0");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            producer.partitionsFor(topic);
            long begin = System.nanoTime() + 200_000_000L;
            for (int i = 0; i < records; i++) {
                long due = begin + (long) (i * 1e9 / rate);
                while (System.nanoTime() < due)
                    java.util.concurrent.locks.LockSupport.parkNanos(Math.min(500_000, due - System.nanoTime()));
                byte[] payload = new byte[Math.max(8, size)];
                ByteBuffer.wrap(payload).putLong(due);
                producer.send(new ProducerRecord<>(topic, payload));
            }
        }
    }

    static String percentiles(double[] millis) {
        Arrays.sort(millis);
        StringBuilder text = new StringBuilder();
        String[] names = {"p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"};
        double[] shares = {0.5, 0.9, 0.99, 0.999, 1.0};
        for (int i = 0; i < names.length; i++) {
            int rank = Math.max(0, (int) Math.ceil(shares[i] * millis.length) - 1);
            text.append(", \"").append(names[i]).append("\": ").append(millis[rank]);
        }
        return text.toString();
    }

    static void requireProgress(long lastNs) {
        if ((System.nanoTime() - lastNs) / 1e9 > IDLE_LIMIT_S) throw new IllegalStateException("nothing came");
    }

    static void sample(int done) {
        long now = System.nanoTime();
        if ((now - sampledNs) / 1e9 < SAMPLE_S) return;
        sampledNs = now;
        if (samples.length() > 0) samples.append(", ");
        samples.append('[').append((now - startedNs) / 1e9).append(", ").append(done).append(']');
    }

    static void begin() {
        startedNs = sampledNs = System.nanoTime();
        startedCpuNs = cpuNs();
    }

    static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    static void report(String more) {
        double seconds = (System.nanoTime() - startedNs) / 1e9;
        System.out.println("{\"records\": " + records + ", \"seconds\": " + seconds + ", \"records_per_s\": "
            + records / seconds + ", \"cpu_client_s\": " + (cpuNs() - startedCpuNs) / 1e9
            + ", \"samples\": [" + samples + "]" + more + "}");
    }
}
