//! What an answer of Redis, or none, says about another attempt.

use postrider_core::{Error, ErrorKind, Failure};
use redis::{RedisError, ServerError};

use super::RedisOptions;

/// An error of the connection, or of making one.
pub(super) fn of_error(error: &RedisError, options: &RedisOptions) -> Failure {
    let server = &options.server;
    if error.is_timeout() {
        return Failure::unavailable(format!(
            "Redis at {server} gave no answer within {}",
            options.time_limit
        ));
    }
    let advice = match error.code() {
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => LOGIN,
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => LOGIN,
        _ => "",
    };
    Failure::unavailable(format!("Redis at {server} cannot be used: {error}{advice}"))
}

const LOGIN: &str = ": the login is refused; correct `user` and `password`, or what the user may do";

/// An answer to a command. Most say that the server as a whole takes nothing for now, whatever the event.
pub(super) fn of_answer(error: &ServerError, options: &RedisOptions) -> Failure {
    let code = error.code();
    let message = format!("Redis refused the event: {code} {}", error.details().unwrap_or_default());
    let advice = match code {
        "OOM" => "give it memory (maxmemory), or set `maxlen`; nothing is lost meanwhile",
        "READONLY" => "this is a replica; name the primary",
        "MISCONF" => "it cannot write to its disk; see its log",
        "NOREPLICAS" => "too few replicas are connected (min-replicas-to-write)",
        "MOVED" | "ASK" | "CROSSSLOT" => "a Redis Cluster is not supported; name a single server",
        "NOAUTH" | "WRONGPASS" => "correct `user` and `password`",
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "EXECABORT" => {
            "wait; nothing is lost meanwhile"
        }
        "WRONGTYPE" => {
            return for_one_or_all(
                options,
                format!("{message}: the key holds something else; mend `stream`"),
            );
        }
        "NOPERM" => {
            return for_one_or_all(options, format!("{message}: allow the user XADD, MULTI and EXEC on it"));
        }
        _ => return Failure::retry(message),
    };
    Failure::unavailable(format!("{message}: {advice}"))
}

/// With one stream for all events, what is wrong with it is wrong for all; else only for some.
fn for_one_or_all(options: &RedisOptions, message: String) -> Failure {
    if options.stream.is_constant() { Failure::unavailable(message) } else { Failure::retry(message) }
}

pub(super) fn no_stream(stream: &str, kind: &str) -> String {
    format!("the key `{stream}` in Redis holds a {kind} and no stream: choose another `stream`")
}

pub(super) fn as_error(failure: Failure) -> Error {
    Error::new(ErrorKind::Unavailable, failure.message().to_owned()).with_source(failure)
}
