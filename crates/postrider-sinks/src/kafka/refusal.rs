//! What an error of Kafka says about the event, the topic and the broker.

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

/// Whose fault it is that a record was not acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Some record of the request cannot be taken, ever; which one, only a request with a single record tells.
    Content,
    /// Another record's: the producer died of it, or the request was refused for it.
    Collateral,
    /// The topic takes nothing from us: it is not there, or not ours.
    Topic,
    /// The cluster's, whatever the event.
    Cluster,
    /// Nobody knows; another attempt may succeed.
    Unknown,
}

impl Refusal {
    pub(super) fn of(error: &KafkaError) -> Self {
        match error.rdkafka_error_code() {
            Some(
                Code::MessageSizeTooLarge
                | Code::MessageBatchTooLarge
                | Code::InvalidMessageSize
                | Code::InvalidMessage
                | Code::InvalidRecord
                | Code::InvalidTimestamp
                | Code::UnsupportedForMessageFormat
                | Code::PolicyViolation,
            ) => Self::Content,
            Some(
                Code::Fatal
                | Code::GaplessGuarantee
                | Code::PurgeQueue
                | Code::PurgeInflight
                | Code::InvalidDifferentRecord
                | Code::OutOfOrderSequenceNumber
                | Code::DuplicateSequenceNumber
                | Code::InvalidProducerEpoch
                | Code::ProducerFenced
                | Code::Fenced
                | Code::UnknownProducerId
                | Code::InvalidProducerIdMapping
                | Code::Inconsistent
                | Code::State,
            ) => Self::Collateral,
            Some(
                Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownPartition
                | Code::UnknownTopicId
                | Code::InvalidTopic
                | Code::TopicAuthorizationFailed,
            ) => Self::Topic,
            Some(
                Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::MessageTimedOut
                | Code::OperationTimedOut
                | Code::TimedOutQueue
                | Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState
                | Code::ClusterAuthorizationFailed
                | Code::NotEnoughReplicas
                | Code::NotEnoughReplicasAfterAppend
                | Code::LeaderNotAvailable
                | Code::BrokerNotAvailable
                | Code::KafkaStorageError,
            ) => Self::Cluster,
            _ => Self::Unknown,
        }
    }
}

/// Whether a broker lets us in no more, so that waiting is in vain.
pub(super) fn is_login(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism)
    )
}

/// The client's own words, which hold nothing of an event.
pub(super) fn words(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_by_whose_fault_they_are() {
        for (code, expected) in [
            (Code::MessageSizeTooLarge, Refusal::Content),
            (Code::Fatal, Refusal::Collateral),
            (Code::TopicAuthorizationFailed, Refusal::Topic),
            (Code::NotEnoughReplicas, Refusal::Cluster),
            (Code::Unknown, Refusal::Unknown),
        ] {
            assert_eq!(Refusal::of(&KafkaError::MessageProduction(code)), expected, "{code:?}");
        }
        assert!(is_login(&KafkaError::Global(Code::Authentication)));
        assert!(!is_login(&KafkaError::Global(Code::AllBrokersDown)));
    }
}
