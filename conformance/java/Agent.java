import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.java.message.MessageViewImpl;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonArray;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/**
 * Agent of the published Java client (rocketmq-client-java): does what ../run tells it on standard input.
 * One JSON object a line in, one a line out; see "Agents" in ../README.md. Each command runs on a thread of its own.
 * TLS is the client's default and stays on unless a command says "tls": false.
 */
public class Agent {
    private static final Gson GSON = new Gson();
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, AutoCloseable> clients = new ConcurrentHashMap<>();
    private final Map<String, Received> received = new ConcurrentHashMap<>();
    private final Map<String, Queue<JsonObject>> events = new ConcurrentHashMap<>();
    private final Map<String, CountDownLatch> gates = new ConcurrentHashMap<>();
    private final Map<String, Transaction> halves = new ConcurrentHashMap<>();
    private final Map<String, Queue<String>> questions = new ConcurrentHashMap<>();
    private final AtomicLong next = new AtomicLong();
    private final String endpoint;
    private final Duration requestTimeout;

    private static final class Received {
        final MessageViewImpl message;
        final String firstHandle;

        Received(MessageViewImpl message) {
            this.message = message;
            this.firstHandle = message.getReceiptHandle();
        }
    }

    private Agent(String endpoint, Duration requestTimeout) {
        this.endpoint = endpoint;
        this.requestTimeout = requestTimeout;
    }

    private ClientConfiguration configuration(JsonObject c) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(endpoint)
            .setRequestTimeout(requestTimeout);
        if (c.has("tls")) {
            builder.enableSsl(c.get("tls").getAsBoolean());
        }
        if (c.has("credentials")) {
            JsonArray keys = c.getAsJsonArray("credentials");
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(keys.get(0).getAsString(), keys.get(1).getAsString()));
        }
        if (c.has("namespace")) {
            builder.setNamespace(text(c, "namespace"));
        }
        return builder.build();
    }

    private static String text(JsonObject c, String key) {
        return c.get(key).getAsString();
    }

    private static Map<String, FilterExpression> subscription(JsonObject c) {
        return Map.of(text(c, "topic"), new FilterExpression(text(c, "filter"),
            c.has("sql") ? FilterExpressionType.SQL92 : FilterExpressionType.TAG));
    }

    private JsonObject run(JsonObject c) throws Exception {
        switch (text(c, "op")) {
            case "producer": return producer(c);
            case "send": return send(c);
            case "recall": return recall(c);
            case "consumer": return consumer(c);
            case "receive": return receive(c);
            case "ack": return ack(c);
            case "change": return change(c);
            case "push": return push(c);
            case "release": return release(c);
            case "seen": return seen(c);
            case "half": return half(c);
            case "end": return end(c);
            case "asked": return asked(c);
            case "close": return close(c);
            default: throw new IllegalArgumentException("unknown operation");
        }
    }

    private JsonObject producer(JsonObject c) throws Exception {
        List<String> topics = new ArrayList<>();
        c.getAsJsonArray("topics").forEach(t -> topics.add(t.getAsString()));
        ProducerBuilder builder = provider.newProducerBuilder().setClientConfiguration(configuration(c))
            .setTopics(topics.toArray(new String[0]));
        if (c.has("checks")) {
            Queue<String> asked = new ConcurrentLinkedQueue<>();
            questions.put(text(c, "name"), asked);
            TransactionResolution answer = text(c, "checks").equals("commit") ? TransactionResolution.COMMIT
                : text(c, "checks").equals("rollback") ? TransactionResolution.ROLLBACK : TransactionResolution.UNKNOWN;
            builder.setTransactionChecker(m -> {
                asked.add(m.getMessageId().toString());
                return answer;
            });
        }
        clients.put(text(c, "name"), builder.build());
        return new JsonObject();
    }

    private JsonObject half(JsonObject c) throws Exception {
        Producer producer = (Producer) clients.get(text(c, "name"));
        Transaction transaction = producer.beginTransaction();
        String id = producer.send(provider.newMessageBuilder().setTopic(text(c, "topic"))
            .setBody(Base64.getDecoder().decode(text(c, "body"))).build(), transaction).getMessageId().toString();
        halves.put(id, transaction);
        JsonObject answer = new JsonObject();
        answer.addProperty("id", id);
        answer.addProperty("ref", id);
        return answer;
    }

    private JsonObject end(JsonObject c) throws Exception {
        Transaction transaction = halves.get(text(c, "ref"));
        if (c.get("commit").getAsBoolean()) {
            transaction.commit();
        } else {
            transaction.rollback();
        }
        return new JsonObject();
    }

    private JsonObject asked(JsonObject c) {
        JsonArray ids = new JsonArray();
        questions.get(text(c, "name")).forEach(ids::add);
        JsonObject answer = new JsonObject();
        answer.add("ids", ids);
        return answer;
    }

    private JsonObject send(JsonObject c) throws Exception {
        MessageBuilder builder = provider.newMessageBuilder().setTopic(text(c, "topic"))
            .setBody(Base64.getDecoder().decode(text(c, "body")));
        if (c.has("tag")) {
            builder.setTag(text(c, "tag"));
        }
        if (c.has("message_group")) {
            builder.setMessageGroup(text(c, "message_group"));
        }
        if (c.has("keys")) {
            List<String> keys = new ArrayList<>();
            c.getAsJsonArray("keys").forEach(k -> keys.add(k.getAsString()));
            builder.setKeys(keys.toArray(new String[0]));
        }
        if (c.has("properties")) {
            for (Map.Entry<String, JsonElement> p : c.getAsJsonObject("properties").entrySet()) {
                builder.addProperty(p.getKey(), p.getValue().getAsString());
            }
        }
        if (c.has("deliver_at_s")) {
            builder.setDeliveryTimestamp(c.get("deliver_at_s").getAsLong() * 1000);
        }
        SendReceipt receipt = ((Producer) clients.get(text(c, "name"))).send(builder.build());
        JsonObject answer = new JsonObject();
        answer.addProperty("id", receipt.getMessageId().toString());
        answer.addProperty("recall", receipt.getRecallHandle());
        return answer;
    }

    private JsonObject recall(JsonObject c) throws Exception {
        JsonObject answer = new JsonObject();
        Producer producer = (Producer) clients.get(text(c, "name"));
        answer.addProperty("id", producer.recallMessage(text(c, "topic"), text(c, "handle")).getMessageId().toString());
        return answer;
    }

    private JsonObject consumer(JsonObject c) throws Exception {
        clients.put(text(c, "name"), provider.newSimpleConsumerBuilder().setClientConfiguration(configuration(c))
            .setConsumerGroup(text(c, "group")).setSubscriptionExpressions(subscription(c))
            .setAwaitDuration(Duration.ofSeconds(c.get("await_s").getAsLong())).build());
        return new JsonObject();
    }

    private static JsonObject show(MessageView m) {
        JsonObject shown = new JsonObject();
        shown.addProperty("id", m.getMessageId().toString());
        shown.addProperty("topic", m.getTopic());
        shown.addProperty("tag", m.getTag().orElse(null));
        JsonArray keys = new JsonArray();
        m.getKeys().stream().sorted().forEach(keys::add);
        shown.add("keys", keys);
        shown.add("properties", GSON.toJsonTree(m.getProperties()));
        ByteBuffer buffer = m.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        shown.addProperty("body", Base64.getEncoder().encodeToString(body));
        shown.addProperty("attempt", m.getDeliveryAttempt());
        shown.addProperty("corrupted", ((MessageViewImpl) m).isCorrupted());
        return shown;
    }

    private JsonObject receive(JsonObject c) throws Exception {
        SimpleConsumer consumer = (SimpleConsumer) clients.get(text(c, "name"));
        JsonArray messages = new JsonArray();
        for (MessageView m : consumer.receive(c.get("max").getAsInt(), Duration.ofSeconds(c.get("invisible_s").getAsLong()))) {
            String ref = text(c, "name") + "/" + next.getAndIncrement();
            received.put(ref, new Received((MessageViewImpl) m));
            JsonObject shown = show(m);
            shown.addProperty("ref", ref);
            messages.add(shown);
        }
        JsonObject answer = new JsonObject();
        answer.add("messages", messages);
        return answer;
    }

    private JsonObject ack(JsonObject c) throws Exception {
        Received r = received.get(text(c, "ref"));
        if (c.has("handle") && text(c, "handle").equals("old")) {
            r.message.setReceiptHandle(r.firstHandle);
        }
        ((SimpleConsumer) clients.get(text(c, "name"))).ack(r.message);
        return new JsonObject();
    }

    private JsonObject change(JsonObject c) throws Exception {
        Received r = received.get(text(c, "ref"));
        ((SimpleConsumer) clients.get(text(c, "name")))
            .changeInvisibleDuration(r.message, Duration.ofSeconds(c.get("invisible_s").getAsLong()));
        JsonObject answer = new JsonObject();
        answer.addProperty("changed", !r.message.getReceiptHandle().equals(r.firstHandle));
        return answer;
    }

    private JsonObject push(JsonObject c) throws Exception {
        Queue<JsonObject> seen = new ConcurrentLinkedQueue<>();
        events.put(text(c, "name"), seen);
        CountDownLatch gate = new CountDownLatch(c.has("hold") && c.get("hold").getAsBoolean() ? 1 : 0);
        gates.put(text(c, "name"), gate);
        int failAttempts = c.get("fail_attempts").getAsInt();
        clients.put(text(c, "name"), provider.newPushConsumerBuilder().setClientConfiguration(configuration(c))
            .setConsumerGroup(text(c, "group")).setSubscriptionExpressions(subscription(c))
            .setConsumptionThreadCount(4).setMessageListener(m -> {
                JsonObject event = show(m);
                event.addProperty("at", System.currentTimeMillis() / 1000.0);
                seen.add(event);
                awaitRelease(gate);
                return m.getDeliveryAttempt() <= failAttempts ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
        return new JsonObject();
    }

    private static void awaitRelease(CountDownLatch gate) {
        try {
            gate.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt(); // the client is being closed
        }
    }

    private JsonObject release(JsonObject c) {
        gates.get(text(c, "name")).countDown();
        return new JsonObject();
    }

    private JsonObject seen(JsonObject c) {
        JsonArray list = new JsonArray();
        events.get(text(c, "name")).forEach(list::add);
        JsonObject answer = new JsonObject();
        answer.add("events", list);
        return answer;
    }

    private JsonObject close(JsonObject c) throws Exception {
        clients.remove(text(c, "name")).close();
        return new JsonObject();
    }

    private void handle(JsonObject c) {
        JsonObject answer;
        try {
            answer = run(c);
        } catch (Throwable e) { // the orchestrator judges every failure
            JsonObject error = new JsonObject();
            String message = String.valueOf(e);
            Matcher m = CODE.matcher(message);
            error.addProperty("code", m.find() ? Integer.valueOf(m.group(1)) : null);
            error.addProperty("type", e.getClass().getSimpleName());
            error.addProperty("text", message.substring(0, Math.min(500, message.length())));
            answer = new JsonObject();
            answer.add("error", error);
        }
        answer.add("n", c.get("n"));
        synchronized (System.out) {
            System.out.println(GSON.toJson(answer));
            System.out.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> list = List.of(arguments);
        Agent agent = new Agent(list.get(list.indexOf("--endpoint") + 1),
            Duration.ofSeconds(Long.parseLong(list.get(list.indexOf("--request-timeout") + 1))));
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject command = GSON.fromJson(line, JsonObject.class);
            threads.execute(() -> agent.handle(command));
        }
        Runtime.getRuntime().halt(0); // the clients' own threads would keep the process alive
    }
}
