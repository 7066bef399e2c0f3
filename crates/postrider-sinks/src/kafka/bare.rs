//! librdkafka alone, with the settings of the sink.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Error, ErrorKind, Result};
use rdkafka::error::KafkaError;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};
use rdkafka::types::RDKafkaErrorCode;

use super::producers::config;
use super::record::Record;
use super::{KafkaOptions, refusal};
use crate::bare::refused;

/// Records that are sent again and again.
const AGAIN_AFTER: usize = 20_000;

pub(crate) async fn publish<T>(
    options: &KafkaOptions,
    deliveries: &[Delivery],
    read: impl Fn() -> T,
) -> Result<(T, T)> {
    let producer: FutureProducer = config(options)?.create().map_err(|error| told(&error))?;
    // Not all of them, which would be gigabytes: what does not lie in a cache costs the client time that is
    // not its own.
    let records = records(options, &deliveries[..deliveries.len().min(AGAIN_AFTER)])?;
    connect(&producer, &records).await?;
    let before = read();
    let mut under_way = VecDeque::new();
    for record in records.iter().cycle().take(deliveries.len()) {
        while let Some(report) = send(&producer, record, &mut under_way)? {
            acked(report).await?;
        }
    }
    for report in under_way {
        acked(report).await?;
    }
    Ok((before, read()))
}

pub(crate) async fn ack_times(
    options: &KafkaOptions,
    deliveries: &[Delivery],
    rate: u64,
) -> Result<Vec<Duration>> {
    let producer: FutureProducer = config(options)?.create().map_err(|error| told(&error))?;
    let records = records(options, deliveries)?;
    connect(&producer, &records).await?;
    let mut waiting = Vec::with_capacity(records.len());
    let began = tokio::time::Instant::now();
    for (number, record) in (0_u64..).zip(&records) {
        tokio::time::sleep_until(began + Duration::from_micros(number * 1_000_000 / rate)).await;
        let sent = Instant::now();
        let report = producer.send_result(future(record)).map_err(|(error, _)| told(&error))?;
        waiting.push(tokio::spawn(async move { acked(report).await.map(|()| sent.elapsed()) }));
    }
    let mut times = Vec::with_capacity(waiting.len());
    for ack in waiting {
        times.push(ack.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??);
    }
    Ok(times)
}

fn records<'a>(options: &'a KafkaOptions, deliveries: &'a [Delivery]) -> Result<Vec<Record<'a>>> {
    let record = |delivery| Record::of(delivery, options).map_err(refused);
    deliveries.iter().map(record).collect()
}

/// The first message waits for the connection and for what the brokers tell of the topic.
async fn connect(producer: &FutureProducer, records: &[Record<'_>]) -> Result<()> {
    match records.first() {
        Some(record) => acked(producer.send_result(future(record)).map_err(|(error, _)| told(&error))?).await,
        None => Ok(()),
    }
}

/// Gives a report to wait for first if the client is full.
fn send(
    producer: &FutureProducer,
    record: &Record<'_>,
    under_way: &mut VecDeque<DeliveryFuture>,
) -> Result<Option<DeliveryFuture>> {
    match producer.send_result(future(record)) {
        Ok(report) => {
            under_way.push_back(report);
            Ok(None)
        }
        Err((error, _)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
            under_way.pop_front().ok_or_else(|| told(&error)).map(Some)
        }
        Err((error, _)) => Err(told(&error)),
    }
}

async fn acked(report: DeliveryFuture) -> Result<()> {
    match report.await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err((error, _))) => Err(told(&error)),
        Err(_) => Err(told(&KafkaError::Canceled)),
    }
}

fn told(error: &KafkaError) -> Error {
    refused(refusal::words(error))
}

/// The client's usual way: a future for each record.
fn future<'a>(record: &'a Record<'_>) -> FutureRecord<'a, str, [u8]> {
    let record = record.to_send(0);
    FutureRecord {
        topic: record.topic,
        partition: record.partition,
        payload: record.payload,
        key: record.key,
        timestamp: record.timestamp,
        headers: record.headers,
    }
}
