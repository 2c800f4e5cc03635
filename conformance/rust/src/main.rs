//! Agent of the published Rust client (crates.io rocketmq): does what ../run tells it on standard input.
//! One JSON object a line in, one a line out; see "Agents" in ../README.md. Commands run concurrently.
//! The client has neither a push consumer nor a change of the invisible duration.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::{ClientError, ErrorKind};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionChecker, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{mpsc, oneshot, RwLock};

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

#[derive(Default)]
struct Agent {
    endpoint: String,
    request_timeout: Duration,
    producers: RwLock<HashMap<String, Arc<Producer>>>,
    consumers: RwLock<HashMap<String, Arc<Consumer>>>,
    received: RwLock<HashMap<String, Arc<MessageView>>>,
    /// Take whether to commit, and where to tell what came of it.
    halves: RwLock<HashMap<String, oneshot::Sender<(bool, oneshot::Sender<Result<(), Value>>)>>>,
    questions: RwLock<HashMap<String, Arc<Mutex<Vec<String>>>>>,
    next: AtomicU64,
}

/// What went wrong, in the form the orchestrator judges.
fn error(kind: &str, text: &str, code_name: Option<&str>) -> Value {
    json!({"error": {"code": null, "code_name": code_name, "type": kind, "text": text.chars().take(500).collect::<String>()}})
}

fn client_error(e: ClientError) -> Value {
    let code = e.context().iter().find(|(k, _)| *k == "code").map(|(_, v)| v.clone());
    let server = *e.kind() == ErrorKind::Server;
    error(&format!("{:?}", e.kind()), &e.to_string(), code.as_deref().filter(|_| server))
}

fn text<'a>(c: &'a Value, key: &str) -> Result<&'a str, Value> {
    c[key].as_str().ok_or_else(|| error("Agent", &format!("no {key}"), None))
}

fn missing() -> Value {
    error("Agent", "no such client or message", None)
}

fn checker(answer: String, asked: Arc<Mutex<Vec<String>>>) -> Box<TransactionChecker> {
    Box::new(move |_, message| {
        if let Ok(mut asked) = asked.lock() {
            asked.push(message.message_id().to_owned());
        }
        match answer.as_str() {
            "commit" => TransactionResolution::COMMIT,
            "rollback" => TransactionResolution::ROLLBACK,
            _ => TransactionResolution::UNKNOWN,
        }
    })
}

impl Agent {
    fn option(&self, c: &Value) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(&self.endpoint);
        option.set_enable_tls(c["tls"].as_bool().unwrap_or(false));
        if let (Some(access_key), Some(secret_key)) = (c["credentials"][0].as_str(), c["credentials"][1].as_str()) {
            option.set_access_key(access_key);
            option.set_secret_key(secret_key);
        }
        option.set_timeout(self.request_timeout);
        option.set_long_polling_timeout(Duration::from_secs(c["await_s"].as_u64().unwrap_or(10)));
        option
    }

    async fn run(&self, c: &Value) -> Result<Value, Value> {
        match text(c, "op")? {
            "producer" => self.producer(c).await,
            "send" => self.send(c).await,
            "consumer" => self.consumer(c).await,
            "receive" => self.receive(c).await,
            "ack" => self.ack(c).await,
            "half" => self.half(c).await,
            "end" => self.end(c).await,
            "asked" => self.asked(c).await,
            "close" => self.close(c).await,
            other => Err(error("Agent", &format!("the client cannot {other}"), None)),
        }
    }

    async fn producer(&self, c: &Value) -> Result<Value, Value> {
        let topics: Vec<String> = c["topics"].as_array().into_iter().flatten().filter_map(|t| t.as_str().map(String::from)).collect();
        let mut option = ProducerOption::default();
        option.set_topics(topics);
        let mut client = match c["checks"].as_str() {
            Some(answer) => {
                let asked = Arc::<Mutex<Vec<String>>>::default();
                self.questions.write().await.insert(text(c, "name")?.into(), asked.clone());
                Producer::new_transaction_producer(option, self.option(c), checker(answer.to_owned(), asked))
            }
            None => Producer::new(option, self.option(c)),
        }
        .map_err(client_error)?;
        client.start().await.map_err(client_error)?;
        self.producers.write().await.insert(text(c, "name")?.into(), Arc::new(client));
        Ok(json!({}))
    }

    async fn send(&self, c: &Value) -> Result<Value, Value> {
        let client = self.producers.read().await.get(text(c, "name")?).cloned().ok_or_else(missing)?;
        let body = STANDARD.decode(text(c, "body")?).map_err(|e| error("Agent", &e.to_string(), None))?;
        let mut builder = MessageBuilder::builder().set_topic(text(c, "topic")?).set_body(body);
        if let Some(tag) = c["tag"].as_str() {
            builder = builder.set_tag(tag);
        }
        if let Some(group) = c["message_group"].as_str() {
            builder = builder.set_message_group(group);
        }
        if let Some(keys) = c["keys"].as_array() {
            builder = builder.set_keys(keys.iter().filter_map(|k| k.as_str()).collect());
        }
        if let Some(properties) = c["properties"].as_object() {
            builder = builder.set_properties(properties.iter().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))).collect::<HashMap<_, _>>());
        }
        if let Some(seconds) = c["deliver_at_s"].as_i64() {
            builder = builder.set_delivery_timestamp(seconds);
        }
        let receipt = client.send(builder.build().map_err(client_error)?).await.map_err(client_error)?;
        Ok(json!({"id": receipt.message_id()}))
    }

    async fn half(&self, c: &Value) -> Result<Value, Value> {
        let client = self.producers.read().await.get(text(c, "name")?).cloned().ok_or_else(missing)?;
        let body = STANDARD.decode(text(c, "body")?).map_err(|e| error("Agent", &e.to_string(), None))?;
        let message = MessageBuilder::transaction_message_builder(text(c, "topic")?, body).build().map_err(client_error)?;
        let transaction = client.send_transaction_message(message).await.map_err(client_error)?;
        let id = transaction.message_id().to_owned();
        let (sender, ended) = oneshot::channel::<(bool, oneshot::Sender<_>)>();
        self.halves.write().await.insert(id.clone(), sender);
        // The type of the transaction has no name; a task keeps it.
        tokio::spawn(async move {
            let Ok((commit, answer)) = ended.await else { return };
            let result = if commit { transaction.commit().await } else { transaction.rollback().await };
            let _ = answer.send(result.map_err(client_error));
        });
        Ok(json!({"id": id, "ref": id}))
    }

    async fn end(&self, c: &Value) -> Result<Value, Value> {
        let half = self.halves.write().await.remove(text(c, "ref")?).ok_or_else(missing)?;
        let (sender, answer) = oneshot::channel();
        half.send((c["commit"].as_bool().unwrap_or(false), sender)).map_err(|_| missing())?;
        answer.await.map_err(|_| missing())??;
        Ok(json!({}))
    }

    async fn asked(&self, c: &Value) -> Result<Value, Value> {
        let asked = self.questions.read().await.get(text(c, "name")?).cloned().ok_or_else(missing)?;
        let ids = asked.lock().map_err(|_| missing())?.clone();
        Ok(json!({"ids": ids}))
    }

    async fn consumer(&self, c: &Value) -> Result<Value, Value> {
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(c, "group")?);
        option.set_topics(vec![text(c, "topic")?]);
        let mut client = SimpleConsumer::new(option, self.option(c)).map_err(client_error)?;
        client.start().await.map_err(client_error)?;
        let kind = if c["sql"].as_bool() == Some(true) { FilterType::Sql } else { FilterType::Tag };
        let filter = FilterExpression::new(kind, text(c, "filter")?);
        let consumer = Consumer { client, topic: text(c, "topic")?.into(), filter };
        self.consumers.write().await.insert(text(c, "name")?.into(), Arc::new(consumer));
        Ok(json!({}))
    }

    async fn receive(&self, c: &Value) -> Result<Value, Value> {
        let consumer = self.consumers.read().await.get(text(c, "name")?).cloned().ok_or_else(missing)?;
        let invisible = Duration::from_secs(c["invisible_s"].as_u64().unwrap_or(0));
        let max = c["max"].as_i64().unwrap_or(1) as i32;
        let messages = consumer.client.receive_with(&consumer.topic, &consumer.filter, max, invisible).await.map_err(client_error)?;
        let mut shown = Vec::new();
        for m in messages {
            let reference = format!("{}/{}", text(c, "name")?, self.next.fetch_add(1, Ordering::Relaxed));
            let mut keys = m.keys().to_vec();
            keys.sort();
            shown.push(json!({"ref": reference, "id": m.message_id(), "topic": m.topic(), "tag": m.tag(), "keys": keys,
                "properties": m.properties(), "body": STANDARD.encode(m.body()), "attempt": m.delivery_attempt(), "corrupted": false}));
            self.received.write().await.insert(reference, Arc::new(m));
        }
        Ok(json!({"messages": shown}))
    }

    async fn ack(&self, c: &Value) -> Result<Value, Value> {
        let consumer = self.consumers.read().await.get(text(c, "name")?).cloned().ok_or_else(missing)?;
        let message = self.received.read().await.get(text(c, "ref")?).cloned().ok_or_else(missing)?;
        consumer.client.ack(message.as_ref()).await.map_err(client_error)?;
        Ok(json!({}))
    }

    async fn close(&self, c: &Value) -> Result<Value, Value> {
        let name = text(c, "name")?;
        if let Some(Ok(p)) = self.producers.write().await.remove(name).map(Arc::try_unwrap) {
            p.shutdown().await.map_err(client_error)?;
        }
        if let Some(Ok(s)) = self.consumers.write().await.remove(name).map(Arc::try_unwrap) {
            s.client.shutdown().await.map_err(client_error)?;
        }
        Ok(json!({}))
    }
}

#[tokio::main]
async fn main() {
    let argument = |name: &str| std::env::args().skip_while(|a| a != name).nth(1).unwrap_or_default();
    let request_timeout = Duration::from_secs(argument("--request-timeout").parse().unwrap_or(3));
    let agent = Arc::new(Agent { endpoint: argument("--endpoint"), request_timeout, ..Agent::default() });
    let (output, mut answers) = mpsc::channel::<Value>(64);
    tokio::spawn(async move {
        while let Some(answer) = answers.recv().await {
            println!("{answer}");
        }
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(command) = serde_json::from_str::<Value>(&line) else { continue };
        let (agent, output) = (agent.clone(), output.clone());
        tokio::spawn(async move {
            let n = command["n"].clone();
            // The client panics on some answers; a task of its own turns that into an error.
            let work = tokio::spawn(async move { agent.run(&command).await.unwrap_or_else(|e| e) });
            let mut answer = work.await.unwrap_or_else(|e| error("Panic", &e.to_string(), None));
            answer["n"] = n;
            let _ = output.send(answer).await;
        });
    }
}
