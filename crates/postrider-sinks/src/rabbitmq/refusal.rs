//! What an error says about the event, the exchange and the broker.

use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Error, ErrorKind};

/// Whose fault it is that a message was not confirmed. A broker refuses a message by closing its channel, and does not
/// say which message it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Some message of the channel is too large, or malformed.
    Content,
    /// Some exchange of the channel is not there, or not ours.
    Exchange,
    /// The channel was closed before it was the turn of this message.
    Collateral,
    /// A message and the close of its channel crossed: the broker got it for a channel that it knew no more,
    /// and closed the connection for that, with all channels. The client lets its answer to a close overtake
    /// what waits to be written.
    Crossing,
    /// The connection is gone.
    Connection,
}

impl Refusal {
    pub(super) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(error) => match error.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED) => Self::Exchange,
                AMQPErrorKind::Soft(_) => Self::Content,
                AMQPErrorKind::Hard(AMQPHardError::CHANNELERROR | AMQPHardError::UNEXPECTEDFRAME) => {
                    Self::Crossing
                }
                AMQPErrorKind::Hard(_) => Self::Connection,
            },
            ErrorKind::SerialisationError(_) => Self::Content,
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => Self::Collateral,
            _ => Self::Connection,
        }
    }
}

/// Whether a broker to which we connect answers and does not let us in, so that waiting is in vain.
pub(super) fn is_login(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(_) | ErrorKind::AuthProviderError(_))
}

#[cfg(test)]
mod tests {
    use lapin::ChannelState;
    use lapin::protocol::AMQPError;

    use super::*;

    #[test]
    fn an_error_tells_whose_fault_it_was() {
        let told = |kind: AMQPErrorKind| ErrorKind::ProtocolError(AMQPError::new(kind, "no".into()));
        for (kind, refusal) in [
            (told(AMQPSoftError::NOTFOUND.into()), Refusal::Exchange),
            (told(AMQPSoftError::ACCESSREFUSED.into()), Refusal::Exchange),
            (told(AMQPSoftError::PRECONDITIONFAILED.into()), Refusal::Content),
            // "expected 'channel.open'", and a header without its method.
            (told(AMQPHardError::CHANNELERROR.into()), Refusal::Crossing),
            (told(AMQPHardError::UNEXPECTEDFRAME.into()), Refusal::Crossing),
            (told(AMQPHardError::CONNECTIONFORCED.into()), Refusal::Connection),
            (ErrorKind::InvalidChannelState(ChannelState::Closing, "basic.publish"), Refusal::Collateral),
            (ErrorKind::MissingHeartbeatError, Refusal::Connection),
        ] {
            assert_eq!(Refusal::of(&Error::from(kind.clone())), refusal, "{kind:?}");
        }
    }
}
