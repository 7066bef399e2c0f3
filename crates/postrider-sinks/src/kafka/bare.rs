//! librdkafka alone, with the settings of the sink.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use postrider_core::{Delivery, Error, ErrorKind, Result};
use rdkafka::error::KafkaError;
use rdkafka::producer::DeliveryFuture;
use rdkafka::types::RDKafkaErrorCode;

use super::producers::Producer;
use super::record::Record;
use super::{KafkaOptions, refusal};
use crate::bare::refused;

pub(crate) async fn publish(options: &KafkaOptions, deliveries: &[Delivery]) -> Result<Duration> {
    let producer = Producer::new(options, &[])?;
    let records = records(options, deliveries)?;
    connect(&producer, &records).await?;
    let began = Instant::now();
    let mut under_way = VecDeque::new();
    for record in &records {
        while let Some(report) = send(&producer, record, &mut under_way)? {
            acked(report).await?;
        }
    }
    for report in under_way {
        acked(report).await?;
    }
    Ok(began.elapsed())
}

pub(crate) async fn ack_times(
    options: &KafkaOptions,
    deliveries: &[Delivery],
    rate: u64,
) -> Result<Vec<Duration>> {
    let producer = Producer::new(options, &[])?;
    let records = records(options, deliveries)?;
    connect(&producer, &records).await?;
    let mut waiting = Vec::with_capacity(records.len());
    let began = tokio::time::Instant::now();
    for (number, record) in (0_u64..).zip(&records) {
        tokio::time::sleep_until(began + Duration::from_micros(number * 1_000_000 / rate)).await;
        let sent = Instant::now();
        let report = producer.client.send_result(record.to_send()).map_err(|(error, _)| told(&error))?;
        waiting.push(tokio::spawn(async move { acked(report).await.map(|()| sent.elapsed()) }));
    }
    let mut times = Vec::with_capacity(waiting.len());
    for ack in waiting {
        times.push(ack.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))??);
    }
    Ok(times)
}

fn records<'a>(options: &'a KafkaOptions, deliveries: &'a [Delivery]) -> Result<Vec<Record<'a>>> {
    let record = |delivery| Record::of(delivery, options).map_err(|failure| refused(&failure));
    deliveries.iter().map(record).collect()
}

/// The first message waits for the connection and for what the brokers tell of the topic.
async fn connect(producer: &Producer, records: &[Record<'_>]) -> Result<()> {
    match records.first() {
        Some(record) => {
            acked(producer.client.send_result(record.to_send()).map_err(|(error, _)| told(&error))?).await
        }
        None => Ok(()),
    }
}

/// Gives a report to wait for first if the client is full.
fn send(
    producer: &Producer,
    record: &Record<'_>,
    under_way: &mut VecDeque<DeliveryFuture>,
) -> Result<Option<DeliveryFuture>> {
    match producer.client.send_result(record.to_send()) {
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
    Error::new(
        ErrorKind::Unavailable,
        format!("the bare client could not send a message: {}", refusal::words(error)),
    )
}
