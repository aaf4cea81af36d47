// ActiveMQ's own client (JMS over OpenWire): persistent messages into a queue with asynchronous sends, or a consumer
// with automatic acknowledgement and a prefetch of 1000. The flags and the report are those of `barnabas perf`.

import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;

public class ActiveMqPerf {
    static final long IDLE_LIMIT_MS = 30_000;
    static final int STRETCH = 1_000;
    static final double SAMPLE_S = 0.25;

    static int records, size;
    static long startedNs, startedCpuNs, sampledNs;
    static final StringBuilder samples = new StringBuilder();

    public static void main(String[] arguments) throws Exception {
        Map<String, String> flags = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) flags.put(arguments[i], arguments[i + 1]);
        records = Integer.parseInt(flags.get("--records"));
        size = Integer.parseInt(flags.getOrDefault("--size", "100"));
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("tcp://" + flags.get("--bootstrap")
            + "?jms.useAsyncSend=true&jms.prefetchPolicy.queuePrefetch=1000");
        Connection connection = factory.createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue(flags.get("--topic"));
        if (arguments[0].equals("produce")) produce(session, queue);
        else consume(session, queue);
        connection.close();
    }

    static void produce(Session session, Queue queue) throws Exception {
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        byte[] payload = new byte[size];
        begin();
        for (int sent = 0; sent < records; sent++) {
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(payload);
            producer.send(message);
            if (sent % STRETCH == 0) sample(sent);
        }
        producer.close();  // is answered after all that was sent before
        report();
    }

    static void consume(Session session, Queue queue) throws Exception {
        MessageConsumer consumer = session.createConsumer(queue);
        for (int got = 0; got < records; got++) {
            Message message = consumer.receive(IDLE_LIMIT_MS);
            if (message == null) throw new IllegalStateException("nothing came for " + IDLE_LIMIT_MS + " ms");
            if (got == 0) begin();
            if (got % STRETCH == 0) sample(got);
        }
        report();
    }

    static void begin() {
        startedNs = sampledNs = System.nanoTime();
        startedCpuNs = cpuNs();
    }

    static void sample(int done) {
        long now = System.nanoTime();
        if ((now - sampledNs) / 1e9 < SAMPLE_S) return;
        sampledNs = now;
        if (samples.length() > 0) samples.append(", ");
        samples.append('[').append((now - startedNs) / 1e9).append(", ").append(done).append(']');
    }

    static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    static void report() {
        double seconds = (System.nanoTime() - startedNs) / 1e9;
        System.out.println("{\"records\": " + records + ", \"seconds\": " + seconds + ", \"records_per_s\": "
            + records / seconds + ", \"cpu_client_s\": " + (cpuNs() - startedCpuNs) / 1e9
            + ", \"samples\": [" + samples + "]}");
    }
}
