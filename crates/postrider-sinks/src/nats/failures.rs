//! What an answer of NATS, or none, says about another attempt.
//!
//! A subject may hold an event's key or header, which belong in no log and in no attempt: the template is told instead.

use std::error::Error as StdError;

use async_nats::client::{PublishError, PublishErrorKind};
use async_nats::jetstream::ErrorCode;
use async_nats::{ConnectError, ConnectErrorKind, SubscribeError};
use postrider_core::{Error, ErrorKind, Failure};

use super::{Connection, NatsOptions};
use crate::batch::sizes;

/// Why the client did not take an event.
pub(super) fn of_publish(error: &PublishError, connection: &Connection, bytes: usize) -> Failure {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => too_large(bytes, connection.client.max_payload()),
        PublishErrorKind::Send => Failure::unavailable(format!("NATS: {}", chain(error))),
        PublishErrorKind::InvalidSubject => Failure::retry(format!("NATS: {}", chain(error))),
    }
}

pub(super) fn no_ack(options: &NatsOptions, connection: &Connection) -> Failure {
    let said = connection.state.borrow().said.clone();
    let subject = &options.subject;
    // The server quotes the subject that it did not permit.
    let said = said.map(|said| match said.split_once('"') {
        Some((before, _)) if !subject.is_constant() => before.trim_end().to_owned(),
        _ => said,
    });
    Failure::unavailable(format!(
        "NATS acked nothing on `{subject}` within {}: see whether the server is well and a stream listens on the subject{}",
        options.time_limit,
        said.map(|said| format!("; the server last said: {said}")).unwrap_or_default()
    ))
}

/// The client compares what it would write with what the server takes, and so do we.
fn too_large(bytes: usize, bytes_max: usize) -> Failure {
    match sizes::check(bytes, bytes_max, "the NATS server (max_payload)") {
        Err(failure) => failure,
        // The headers' own marks made it too large.
        Ok(()) => Failure::permanent(format!(
            "the event is larger on the wire than the NATS server takes (max_payload = {bytes_max}): raise it and replay \
             the dead letter, or emit a reference to the content"
        )),
    }
}

/// A stream's own words.
pub(super) fn of_answer(answer: &async_nats::jetstream::Error, options: &NatsOptions) -> Failure {
    let subject = &options.subject;
    let message = format!("JetStream refused the event on `{subject}`: {answer}");
    match answer.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Failure::permanent(format!("{message}: raise its limit and replay the dead letter"))
        }
        ErrorCode::STREAM_NOT_MATCH => {
            let expected = options.stream.as_deref().unwrap_or_default();
            let advice = format!(
                "{message}: another stream than `{expected}` listens there; mend `stream` or `subject`"
            );
            for_one_or_all(options, advice)
        }
        // A subject that is full says nothing about others.
        ErrorCode::STREAM_STORE_FAILED if message.contains("per subject") => Failure::retry(message),
        ErrorCode::STREAM_STORE_FAILED => {
            Failure::unavailable(format!("{message}: make room in the stream; nothing is lost meanwhile"))
        }
        ErrorCode::STREAM_SEALED => for_one_or_all(options, message),
        // Resources, clusters without a leader, streams that are offline: 503 in the words of HTTP.
        _ if answer.code() == 503 => Failure::unavailable(message),
        _ => Failure::retry(message),
    }
}

pub(super) fn absent_stream(options: &NatsOptions) -> Failure {
    let subject = &options.subject;
    for_one_or_all(
        options,
        format!(
            "no JetStream stream listens on `{subject}`: create one whose subjects include it; nothing is lost meanwhile"
        ),
    )
}

/// With one subject for all events, what is wrong with it is wrong for all; else only for some.
fn for_one_or_all(options: &NatsOptions, message: String) -> Failure {
    if options.subject.is_constant() { Failure::unavailable(message) } else { Failure::retry(message) }
}

pub(super) fn of_connect(error: &ConnectError, options: &NatsOptions) -> Failure {
    let advice = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            ": the login is refused; correct `user` and `password`, `token`, `nkey` or `credentials`"
        }
        ConnectErrorKind::Tls => ": see `tls` and `ca_file`, and the server's certificate",
        _ => "",
    };
    Failure::unavailable(format!(
        "NATS at {} cannot be reached: {}{advice}",
        options.servers.join(", "),
        chain(error)
    ))
}

pub(super) fn of_subscribe(error: &SubscribeError) -> Failure {
    Failure::unavailable(format!("NATS: {}", chain(error)))
}

pub(super) fn no_answer(options: &NatsOptions) -> Failure {
    let servers = options.servers.join(", ");
    Failure::unavailable(format!(
        "NATS at {servers} cannot be reached: no answer within {}",
        options.time_limit
    ))
}

pub(super) fn no_stream(subject: &str, error: &(dyn StdError + 'static)) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "no JetStream stream listens on `{subject}`: create one whose subjects include it ({})",
            chain(error)
        ),
    )
}

pub(super) fn unknown_stream(name: &str, error: &(dyn StdError + 'static)) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!(
            "the JetStream stream `{name}` cannot be looked at: create it, or mend `stream` ({})",
            chain(error)
        ),
    )
}

pub(super) fn as_error(failure: Failure) -> Error {
    Error::new(ErrorKind::Unavailable, failure.message().to_owned()).with_source(failure)
}

/// An error with its causes, each told once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
