//! Drives the Rust client of RocketMQ 5 by commands on standard input; every event is a JSON line on standard output.
//! The commands are those of GrpcDriver.java that this client can carry out: send, transact, pop, again. It holds every receive for as long
//! as the broker lets it.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};

type Arguments = HashMap<String, String>;
type Outcome = Result<(), Box<dyn Error>>;

fn emit(event: &str, mut fields: Value) {
    // The name of the event comes first, as the reader of these lines looks for it.
    let rest = fields.as_object_mut().map(|map| serde_json::to_string(map).unwrap()).unwrap();
    println!("{{\"event\":\"{}\"{}{}", event, if rest == "{}" { "" } else { "," }, &rest[1..]);
}

fn emit_message(event: &str, message: &MessageView, more: Value) {
    let mut fields = json!({
        "receivedAt": SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64,
        "topic": message.topic(), "body": String::from_utf8_lossy(message.body()), "msgId": message.message_id(),
        "attempt": message.delivery_attempt(), "tag": message.tag(), "keys": message.keys().join(" "),
        "order": message.message_group(), "deliverAt": message.delivery_timestamp().unwrap_or(0) * 1000,
        "properties": message.properties(),
    });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    emit(event, fields);
}

fn resolution(name: &str) -> TransactionResolution {
    match name {
        "commit" => TransactionResolution::COMMIT,
        "rollback" => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

fn message(arguments: &Arguments, body: &str, decided: bool) -> Result<impl Message, Box<dyn Error>> {
    let keys: Vec<&str> = arguments.get("key").map(String::as_str).unwrap_or(body).split(' ').collect();
    let mut properties = HashMap::new();
    for name in ["checked", "price", "note"] {
        if let Some(value) = arguments.get(name) {
            properties.insert(name.to_string(), value.to_string());
        }
    }
    let mut builder = MessageBuilder::builder()
        .set_topic(&arguments["topic"])
        .set_body(body.as_bytes().to_vec())
        .set_tag(arguments.get("tag").map(String::as_str).unwrap_or("red"))
        .set_keys(keys)
        .set_properties(properties);
    if let Some(order) = arguments.get("order") {
        builder = builder.set_message_group(order);
    }
    if let Some(at) = arguments.get("at") {
        builder = builder.set_delivery_timestamp(at.parse::<i64>()? / 1000);
    }
    if decided {
        builder = builder.enable_transaction();
    }
    Ok(builder.build()?)
}

struct Program {
    option: ClientOption,
    producer: Producer,
    simple: HashMap<String, SimpleConsumer>,
    last: String,
    popped: Vec<MessageView>,
}

impl Program {
    async fn start(endpoint: &str, topics: &str) -> Result<Program, Box<dyn Error>> {
        let mut option = ClientOption::default();
        option.set_access_url(endpoint);
        option.set_enable_tls(false);
        if let (Ok(access), Ok(secret)) = (env::var("ROCKETMQ_ACCESS_KEY"), env::var("ROCKETMQ_SECRET_KEY")) {
            option.set_access_key(access);
            option.set_secret_key(secret);
        }
        let mut of_producer = ProducerOption::default();
        of_producer.set_topics(topics.split(',').collect());
        let mut producer = Producer::new_transaction_producer(
            of_producer,
            option.clone(),
            Box::new(|_, message| {
                emit_message("checked", &message, json!({}));
                resolution(&message.properties()["checked"])
            }),
        )?;
        producer.start().await?;
        Ok(Program { option, producer, simple: HashMap::new(), last: String::new(), popped: Vec::new() })
    }

    async fn send(&mut self, arguments: &Arguments) -> Outcome {
        for body in arguments["body"].split(',') {
            match self.producer.send(message(arguments, body, false)?).await {
                Ok(receipt) => emit("sent", json!({"body": body, "msgId": receipt.message_id()})),
                Err(error) => emit("send_failed", json!({"body": body, "error": error.to_string()})),
            }
        }
        Ok(())
    }

    async fn transact(&mut self, arguments: &Arguments) -> Outcome {
        let body = &arguments["body"];
        let transaction = self.producer.send_transaction_message(message(arguments, body, true)?).await?;
        emit("sent", json!({"body": body, "msgId": transaction.message_id()}));
        match arguments["state"].as_str() {
            "commit" => transaction.commit().await?,
            "rollback" => transaction.rollback().await?,
            _ => (),
        }
        Ok(())
    }

    async fn pop(&mut self, arguments: &Arguments) -> Outcome {
        let (group, topic) = (&arguments["group"], &arguments["topic"]);
        self.last = format!("{group}@{topic}");
        if !self.simple.contains_key(&self.last) {
            let mut option = SimpleConsumerOption::default();
            option.set_topics(vec![topic]);
            option.set_consumer_group(group);
            let mut consumer = SimpleConsumer::new(option, self.option.clone())?;
            consumer.start().await?;
            self.simple.insert(self.last.clone(), consumer);
        }
        let filter = match arguments.get("sql") {
            Some(sql) => FilterExpression::new(FilterType::Sql, sql),
            None => FilterExpression::new(FilterType::Tag, arguments.get("tags").map(String::as_str).unwrap_or("*")),
        };
        let count = arguments.get("count").map_or(Ok(16), |count| count.parse())?;
        let invisible = arguments.get("invisible").map_or(Ok(20_000), |ms| ms.parse())?;
        let consumer = &self.simple[&self.last];
        self.popped = consumer.receive_with(topic, &filter, count, Duration::from_millis(invisible)).await?;
        for message in &self.popped {
            emit_message("popped", message, json!({"group": group}));
        }
        self.settle(arguments.get("then").map(String::as_str).unwrap_or("ack")).await;
        Ok(())
    }

    async fn settle(&mut self, how: &str) {
        for message in &self.popped {
            if how == "ack" {
                if let Err(error) = self.simple[&self.last].ack(message).await {
                    emit_message("refused", message, json!({"error": error.to_string()}));
                }
            }
        }
    }

    async fn run(&mut self, name: &str, arguments: &Arguments) -> Outcome {
        match name {
            "send" => self.send(arguments).await,
            "transact" => self.transact(arguments).await,
            "pop" => self.pop(arguments).await,
            "again" => {
                self.settle(&arguments["then"]).await;
                Ok(())
            }
            _ => Err(format!("this client has no {name}").into()),
        }
    }

    async fn close(self) {
        for (_, consumer) in self.simple {
            let _ = consumer.shutdown().await;
        }
        let _ = self.producer.shutdown().await;
    }
}

/// The arguments of a command, percent-encoded UTF-8.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
                at += 2;
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).unwrap()
}

#[tokio::main]
async fn main() -> Outcome {
    let words: Vec<String> = env::args().collect();
    let mut program = Program::start(&words[1], &words[2]).await?;
    emit("ready", json!({}));
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line == "close" {
            break;
        }
        let (name, query) = line.split_once('?').unwrap_or((&line, ""));
        let arguments = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decoded(k), decoded(v))).collect();
        match program.run(name, &arguments).await {
            Ok(()) => emit("done", json!({"command": line})),
            Err(error) => emit("failed", json!({"command": line, "error": error.to_string()})),
        }
    }
    program.close().await;
    emit("closed", json!({}));
    Ok(())
}
