//! What an error says about the event, the exchange and the broker.

use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
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
    /// The connection is gone.
    Connection,
}

impl Refusal {
    pub(super) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(error) => match error.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND | AMQPSoftError::ACCESSREFUSED) => Self::Exchange,
                AMQPErrorKind::Soft(_) => Self::Content,
                AMQPErrorKind::Hard(_) => Self::Connection,
            },
            ErrorKind::SerialisationError(_) => Self::Content,
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => Self::Collateral,
            _ => Self::Connection,
        }
    }
}

/// Whether a broker that answers does not let us in, so that waiting is in vain.
pub(super) fn is_login(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(_) | ErrorKind::AuthProviderError(_))
}
