// Sends an order, receives it, asks for more time, and acknowledges it.
//
//	go mod init example && go get github.com/apache/rocketmq-clients/golang/v5 && go run client.go
//
// Topic `orders` and group `billing` are those of examples/quickstart.yaml.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	// An injected sidecar says where it is.
	endpoint := os.Getenv("ROCKETMQ_ENDPOINTS")
	if endpoint == "" {
		endpoint = "127.0.0.1:8081"
	}
	config := &rmq.Config{Endpoint: endpoint, ConsumerGroup: "billing", Credentials: &credentials.SessionCredentials{}}

	producer, err := rmq.NewProducer(config, rmq.WithTopics("orders"))
	check(err)
	check(producer.Start())
	receipts, err := producer.Send(context.Background(), &rmq.Message{Topic: "orders", Body: []byte("one coffee")})
	check(err)
	fmt.Println("sent", receipts[0].MessageID)
	check(producer.GracefulStop())

	consumer, err := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(10*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{"orders": rmq.SUB_ALL}))
	check(err)
	check(consumer.Start())
	var received []*rmq.MessageView
	for len(received) == 0 { // an error may only mean that no message came in time
		received, err = consumer.Receive(context.Background(), 1, 30*time.Second)
		if err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
	for _, message := range received {
		fmt.Println("received", string(message.GetBody()))
		// The work takes longer: nobody else gets it for another minute.
		check(consumer.ChangeInvisibleDuration(message, time.Minute))
		check(consumer.Ack(context.Background(), message))
		fmt.Println("done")
	}
	check(consumer.GracefulStop())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
