//! What an answer, or none, says about another attempt.

use std::error::Error as StdError;
use std::io;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use postrider_core::Failure;

use super::guard::Refused;
use crate::batch::said::{self, SAID_BYTES_MAX};
use crate::batch::sizes;

/// The longest that a receiver may put us off. It is asked again then.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Whether a receiver's whole URL is the same for all events, so that what is wrong with it is wrong for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    All,
    Some,
}

/// What an answer with this status means; nothing for one that acks.
///
/// `receiver` says to whom which request went, and `body` how the answer begins, which is kept with the attempt.
pub(super) fn of_status(
    status: StatusCode,
    headers: &HeaderMap,
    receiver: &str,
    reach: Reach,
    body: &[u8],
) -> Result<(), Failure> {
    if status.is_success() {
        return Ok(());
    }
    let failure = match status.as_u16() {
        300..=399 => Failure::retry(format!(
            "HTTP status {}: {receiver}: it redirects, which is not followed: change `url` to where it leads",
            status.as_u16()
        )),
        410 if reach == Reach::All => Failure::unavailable(gone(receiver)),
        410 => Failure::permanent(gone(receiver)),
        number => Failure::from_http_status(number, receiver),
    };
    let failure = failure.with_detail(said::beginning(body, SAID_BYTES_MAX));
    Err(match retry_after(headers, SystemTime::now()) {
        Some(delay) => failure.after(delay),
        None => failure,
    })
}

/// The message about a receiver that has answered 410, then and until the sink is opened again.
pub(super) fn gone(receiver: &str) -> String {
    format!(
        "HTTP status 410: {receiver}: it wants no more events, and none are sent: change `url`, or delete the subscription; if it is \
         back, restart or reload the relay"
    )
}

/// Seconds or a date, at most [`RETRY_AFTER_MAX`].
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => RETRY_AFTER_MAX,
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(delay.min(RETRY_AFTER_MAX))
}

/// What an error before any answer means.
pub(super) fn of_error(error: &(dyn StdError + 'static), host: &str, reach: Reach) -> Failure {
    let mut next = Some(error);
    let mut innermost = error.to_string();
    while let Some(cause) = next {
        // What the guard says stands inside of an error of the network.
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let refused =
            inner.and_then(|inner| inner.downcast_ref::<Refused>()).or_else(|| cause.downcast_ref());
        if let Some(refused) = refused {
            return of_refusal(refused, reach);
        }
        if let Some(error) = cause.downcast_ref::<io::Error>()
            && error.kind() != io::ErrorKind::Other
        {
            let failure = sizes::of_io(error, host);
            return if reach == Reach::All { failure } else { Failure::retry(failure.message()) };
        }
        innermost = cause.to_string();
        next = cause.source();
    }
    // What TLS has to say names the host, which here may come from the event.
    let innermost = if reach == Reach::All { innermost } else { error.to_string() };
    Failure::retry(format!("{host}: {innermost}"))
}

/// A URL that may not be spoken to: an event's own fault where events choose it, and else one of config, which can be
/// mended while the events wait.
pub(super) fn of_refusal(refused: &Refused, reach: Reach) -> Failure {
    match reach {
        Reach::All => Failure::unavailable(format!("nothing is sent: {refused}")),
        Reach::Some => Failure::permanent(format!("the event is not sent: {}", refused.discreet())),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::FailureClass;

    use super::*;

    fn headers(retry_after: &str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, retry_after.parse().unwrap())])
    }

    #[test]
    fn statuses_are_acks_or_failures_of_a_class() {
        let class = |status: u16, reach| {
            let status = StatusCode::from_u16(status).unwrap();
            of_status(status, &HeaderMap::new(), "h", reach, b"").map_err(|failure| failure.class())
        };
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(class(status, Reach::All), Ok(()));
        }
        for status in [301, 302, 304, 307, 308, 401, 403, 404, 408, 425, 429, 500, 502, 504, 599] {
            assert_eq!(class(status, Reach::All), Err(FailureClass::Retryable), "{status}");
        }
        for status in [400, 405, 411, 413, 415, 422, 431] {
            assert_eq!(class(status, Reach::All), Err(FailureClass::Permanent), "{status}");
        }
        assert_eq!(class(503, Reach::All), Err(FailureClass::Unavailable));
        assert_eq!(class(410, Reach::All), Err(FailureClass::Unavailable));
        assert_eq!(class(410, Reach::Some), Err(FailureClass::Permanent));
    }

    #[test]
    fn retry_after_is_honoured_within_a_bound() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let after = |text: &str| retry_after(&headers(text), now).map(|delay| delay.as_secs());
        assert_eq!(after("120"), Some(120));
        assert_eq!(after("0"), Some(0));
        assert_eq!(after("99999999"), Some(3600));
        assert_eq!(after("99999999999999999999999999"), Some(3600));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(after("Sun, 06 Nov 2044 08:00:00 GMT"), Some(3600));
        for bad in ["", "-1", "soon", "1.5"] {
            assert_eq!(after(bad), None, "{bad}");
        }
        let answer = StatusCode::TOO_MANY_REQUESTS;
        let failure = of_status(answer, &headers("7"), "POST h", Reach::All, b"slow\ndown\n").unwrap_err();
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(failure.message(), "HTTP status 429: POST h");
        assert_eq!(failure.record(), "HTTP status 429: POST h: slow\\ndown");
    }
}
