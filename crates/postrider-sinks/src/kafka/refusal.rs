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
    /// Unknown; another attempt may succeed.
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
                | Code::SSL
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

/// Why waiting for a broker is in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockedOut {
    /// It refuses our login.
    Login,
    /// It has not proved that it is the one: its certificate is not trusted, or is for another name.
    Untrusted,
    /// It asks for a certificate, and ours is none that it takes.
    Uncertified,
}

impl LockedOut {
    /// What an error says, with the client's own text about it.
    pub(super) fn of(error: &KafkaError, reason: &str) -> Option<Self> {
        let refuses_certificate = ["alert certificate required", "alert bad certificate", "alert unknown ca"];
        match error.rdkafka_error_code()? {
            Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
                Some(Self::Login)
            }
            // Only the text tells it from a connection that broke, which is worth waiting for. Without it we
            // would wait until the deadline and say the same.
            Code::SSL if reason.contains("certificate verify failed") => Some(Self::Untrusted),
            Code::SSL | Code::BrokerTransportFailure
                if refuses_certificate.iter().any(|alert| reason.contains(alert)) =>
            {
                Some(Self::Uncertified)
            }
            _ => None,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Login => "Kafka refuses the login",
            Self::Untrusted => "Kafka has not proved who it is",
            Self::Uncertified => "Kafka wants a certificate of ours that it trusts (`cert_file`, `key_file`)",
        }
    }
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
    }

    #[test]
    fn only_what_time_does_not_heal_ends_the_wait() {
        let of = |code, reason| LockedOut::of(&KafkaError::Global(code), reason);
        assert_eq!(of(Code::Authentication, ""), Some(LockedOut::Login));
        assert_eq!(of(Code::AllBrokersDown, ""), None);
        assert_eq!(
            of(Code::SSL, "SSL handshake failed: certificate verify failed"),
            Some(LockedOut::Untrusted)
        );
        assert_eq!(of(Code::SSL, "SSL handshake failed: Disconnected"), None);
    }
}
