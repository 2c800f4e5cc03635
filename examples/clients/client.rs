//! Sends an order, receives it, and acknowledges it; the published client cannot ask for more time.
//!
//! In Cargo.toml: `rocketmq = "5"`, `time = { version = "0.3", features = ["local-offset"] }` (which the client uses without asking
//! for it) and `tokio = { version = "1", features = ["full"] }`. Topic `orders` and group `billing` are those of
//! examples/quickstart.yaml.

use std::error::Error;
use std::time::Duration;

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};

fn option() -> ClientOption {
    // An injected sidecar says where it is.
    let endpoint = std::env::var("ROCKETMQ_ENDPOINTS").unwrap_or("127.0.0.1:8081".to_owned());
    let mut option = ClientOption::default();
    option.set_access_url(endpoint);
    option.set_enable_tls(false);
    option.set_long_polling_timeout(Duration::from_secs(10));
    option
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut topics = ProducerOption::default();
    topics.set_topics(vec!["orders"]);
    let mut producer = Producer::new(topics, option())?;
    producer.start().await?;
    let message = MessageBuilder::builder().set_topic("orders").set_body(b"one coffee".to_vec()).build()?;
    println!("sent {}", producer.send(message).await?.message_id());
    producer.shutdown().await?;

    let mut group = SimpleConsumerOption::default();
    group.set_consumer_group("billing");
    group.set_topics(vec!["orders"]);
    let mut consumer = SimpleConsumer::new(group, option())?;
    consumer.start().await?;
    let mut received = Vec::new();
    while received.is_empty() {
        // An answer without messages only means that none came in time.
        let all = FilterExpression::new(FilterType::Tag, "*");
        received = consumer.receive_with("orders", &all, 1, Duration::from_secs(30)).await.unwrap_or_default();
    }
    for message in received {
        println!("received {}", String::from_utf8_lossy(message.body()));
        consumer.ack(&message).await?;
        println!("done");
    }
    consumer.shutdown().await?;
    Ok(())
}
