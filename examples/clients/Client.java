import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Sends an order, receives it, asks for more time, and acknowledges it. Needs org.apache.rocketmq:rocketmq-client-java.
 * Topic `orders` and group `billing` are those of examples/quickstart.yaml.
 */
public class Client {
    public static void main(String[] arguments) throws Exception {
        // An injected sidecar says where it is.
        String endpoints = System.getenv().getOrDefault("ROCKETMQ_ENDPOINTS", "127.0.0.1:8081");
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).build();

        try (Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics("orders").build()) {
            var message = provider.newMessageBuilder().setTopic("orders").setBody("one coffee".getBytes(StandardCharsets.UTF_8)).build();
            System.out.println("sent " + producer.send(message).getMessageId());
        }

        try (SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup("billing").setAwaitDuration(Duration.ofSeconds(10))
                .setSubscriptionExpressions(Map.of("orders", FilterExpression.SUB_ALL)).build()) {
            List<MessageView> received = List.of();
            while (received.isEmpty()) { // an answer without messages only means that none came in time
                received = consumer.receive(1, Duration.ofSeconds(30));
            }
            for (MessageView message : received) {
                System.out.println("received " + StandardCharsets.UTF_8.decode(message.getBody()));
                // The work takes longer: nobody else gets it for another minute.
                consumer.changeInvisibleDuration(message, Duration.ofSeconds(60));
                consumer.ack(message);
                System.out.println("done");
            }
        }
        // Threads of the client would keep the program for another minute.
        System.exit(0);
    }
}
