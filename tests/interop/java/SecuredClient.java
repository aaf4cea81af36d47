import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Authenticates with Kafka's Java client: sends one record, reads it again, and prints "value ..." or "error ...".
 *
 * <p>The settings of the client arrive as properties on standard input, with `topic`, `value` and, for OAUTHBEARER,
 * `token`, so that no secret is in a list of processes.
 */
public final class SecuredClient {
    private static String token;

    private SecuredClient() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Properties settings = new Properties();
        settings.load(new java.io.InputStreamReader(System.in, StandardCharsets.UTF_8));
        String topic = (String) settings.remove("topic");
        String value = (String) settings.remove("value");
        token = (String) settings.remove("token");
        try {
            System.out.println("value " + exchange(settings, topic, value));
        } catch (AuthenticationException refused) {
            System.out.println("error " + refused.getClass().getSimpleName() + ": " + refused.getMessage());
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            System.out.println("error " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
        }
    }

    private static String exchange(Properties settings, String topic, String value)
            throws ExecutionException, InterruptedException {
        long offset;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            offset = producer.send(new ProducerRecord<>(topic, 0, null, value)).get().offset();
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            return consumer.poll(Duration.ofSeconds(20)).iterator().next().value();
        }
    }

    /** Returns the token of the settings. The client refuses an expired token itself, so it gets a longer lifetime. */
    public static final class Tokens implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> entries) {}

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) each).token(new Token());
                }
            }
        }

        @Override
        public void close() {}
    }

    private static final class Token implements OAuthBearerToken {
        private final long now = System.currentTimeMillis();

        @Override
        public String value() {
            return token;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return now + 3_600_000;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return now;
        }
    }
}
