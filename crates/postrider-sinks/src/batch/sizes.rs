//! What is too large for a receiver, and what an error says about another attempt.

use std::io;

use postrider_core::{Failure, FailureClass, Outcome};

/// Refuses for good what is larger than the receiver takes, so that it becomes a dead letter at once instead
/// of holding up its key. The reason tells both numbers.
///
/// ```
/// use postrider_sinks::sizes;
/// assert!(sizes::check(10, 10, "topic `orders`").is_ok());
/// let failure = sizes::check(11, 10, "topic `orders`").unwrap_err();
/// assert_eq!(failure.message(), "the event is 11 bytes on the wire, topic `orders` takes 10: raise its limit and \
///     replay the dead letter, or emit a reference to the content");
/// ```
pub fn check(bytes: usize, bytes_max: usize, receiver: &str) -> Result<(), Failure> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(Failure::permanent(format!(
        "the event is {bytes} bytes on the wire, {receiver} takes {bytes_max}: raise its limit and replay the dead \
         letter, or emit a reference to the content"
    )))
}

/// The outcome of an attempt that failed: a dead letter if no attempt will succeed, and else the retry policy's affair.
pub fn outcome(failure: Failure) -> Outcome {
    match failure.class() {
        FailureClass::Permanent => Outcome::Dead(failure),
        FailureClass::Retryable | FailureClass::Unavailable | FailureClass::Snoozed => {
            Outcome::Retry(failure)
        }
    }
}

/// What an error of the network says: a receiver that cannot be connected to or hangs up is down, whatever the event;
/// anything else, time-outs among it, is worth another attempt. Nothing of this kind condemns an event.
pub fn of_io(error: &io::Error, receiver: &str) -> Failure {
    use io::ErrorKind as Kind;
    let message = format!("{receiver}: {error}");
    match error.kind() {
        Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::NotConnected
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NetworkDown
        | Kind::AddrNotAvailable => Failure::unavailable(message),
        _ => Failure::retry(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_become_outcomes_by_their_class() {
        let permanent = check(2, 1, "it").unwrap_err();
        assert_eq!(outcome(permanent.clone()), Outcome::Dead(permanent));
        for failure in [Failure::retry("a"), Failure::unavailable("b")] {
            assert_eq!(outcome(failure.clone()), Outcome::Retry(failure));
        }
    }

    #[test]
    fn an_error_of_the_network_condemns_no_event() {
        let class = |kind: io::ErrorKind| of_io(&kind.into(), "broker").class();
        assert_eq!(class(io::ErrorKind::ConnectionRefused), FailureClass::Unavailable);
        assert_eq!(class(io::ErrorKind::UnexpectedEof), FailureClass::Unavailable);
        assert_eq!(class(io::ErrorKind::TimedOut), FailureClass::Retryable);
        assert_eq!(class(io::ErrorKind::PermissionDenied), FailureClass::Retryable);
    }
}
