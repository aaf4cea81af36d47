import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words: `lines` to `counts`, with the counts so far in a store that a changelog topic backs.
 *
 * <p>A line is "partition number word word ...", numbered upwards in each partition. Kafka Streams may work on a line
 * twice when it was killed (at_least_once), always in order; so the store keeps with each count the last place in each
 * partition that was counted, and skips what is not after it. The counts are right whatever is repeated.
 *
 * <p>Arguments: bootstrap servers, folder for state, processing guarantee, then settings as name=value.
 */
public final class WordCount {
    private static final long WORDS_MAX = 1000;

    private WordCount() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
                .flatMap((key, line) -> places(line).toList())
                .groupByKey()
                .aggregate(() -> "0", (word, place, counted) -> count(counted, place),
                        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .mapValues(counted -> counted.split(" ")[0])
                .to("counts");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setGlobalStateRestoreListener(new Restoring());
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                System.out.println("failure " + cause.getClass().getName() + ": " + cause.getMessage());
            }
            return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
    }

    /** Each word of a line with its place, "partition number", where numbers rise along the partition. */
    private static Stream<KeyValue<String, String>> places(String line) {
        String[] words = line.split(" ");
        long first = Long.parseLong(words[1]) * WORDS_MAX;
        return Stream.iterate(2, index -> index + 1).limit(words.length - 2L)
                .map(index -> new KeyValue<>(words[index], words[0] + " " + (first + index)));
    }

    /** What was counted is "count number number ...": how many, and the last place in each partition. */
    private static String count(String counted, String place) {
        String[] known = counted.split(" ");
        int partition = Integer.parseInt(place.split(" ")[0]);
        long number = Long.parseLong(place.split(" ")[1]);
        String[] after = Arrays.copyOf(known, Math.max(known.length, partition + 2));
        for (int index = known.length; index < after.length; index++) {
            after[index] = "-1";
        }
        if (number > Long.parseLong(after[partition + 1])) {
            after[0] = Long.toString(Long.parseLong(after[0]) + 1);
            after[partition + 1] = Long.toString(number);
        }
        return String.join(" ", after);
    }

    private static final class Restoring implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {
            System.out.println("restored " + partition + " " + restored);
        }

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {}
    }
}
