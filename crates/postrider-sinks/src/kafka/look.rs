//! What a check finds: whether brokers answer and let us in, and whether the topic is there.

use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::producers::Producer;
use super::{KafkaOptions, refusal};

const CHECK_MAX: Duration = Duration::from_secs(10);
/// Between two looks whether there is no need to wait any longer.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Asks for the topic without making it. Whether we may write to it no request tells but a write.
pub(super) async fn check(options: &KafkaOptions) -> Result<Vec<String>> {
    let producer = Producer::new(options, &[("allow.auto.create.topics", "false")])?;
    let topic = options.topic.as_constant().map(str::to_owned);
    let template = options.topic.to_string();
    let bound = CHECK_MAX.min(Duration::from_millis(options.timeout_ms.get().into()));
    let looking = tokio::task::spawn_blocking(move || {
        let metadata = ask(&producer, topic.as_deref(), bound)?;
        let mut found = vec![format!("reaches Kafka, brokers: {}", metadata.brokers().len())];
        found.push(match topic {
            Some(topic) => about_topic(&topic, &metadata)?,
            None => format!("the topic depends on the event: `{template}`"),
        });
        Ok(found)
    });
    looking
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the check of Kafka was stopped")))
}

fn ask(producer: &Producer, topic: Option<&str>, bound: Duration) -> Result<Metadata> {
    let until = Instant::now() + bound;
    loop {
        let error = match producer.client.client().fetch_metadata(topic, LOOK_EVERY) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        let heard = producer.heard.last();
        if let Some(why) = producer.heard.is_locked_out() {
            return Err(Error::invalid(format!("{}{heard}", why.words())));
        }
        if Instant::now() >= until {
            let words = refusal::words(&error);
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("Kafka cannot be reached: {words}{heard}"),
            ));
        }
    }
}

fn about_topic(name: &str, metadata: &Metadata) -> Result<String> {
    let topic = metadata.topics().iter().find(|topic| topic.name() == name);
    let error = topic.and_then(MetadataTopic::error).map(Code::from);
    match (topic, error) {
        (Some(topic), None) => Ok(format!("topic `{name}` has {} partitions", topic.partitions().len())),
        (None, _) | (_, Some(Code::UnknownTopicOrPartition | Code::UnknownTopic)) => Ok(format!(
            "topic `{name}` is not there: the first event would create it, if the brokers let it \
             (`auto.create.topics.enable`), and else wait until somebody does"
        )),
        (_, Some(code)) => Err(Error::invalid(format!("topic `{name}` of Kafka: {code}"))),
    }
}
