//! The URL of a store as people write it, made fit for the client library. Nothing of it is ever repeated in
//! an error: any part may be a password that was not encoded.

use postrider_core::{Error, Result};

const FORM: &str = "write postgres://USER@HOST/DATABASE";

/// The parameters that the client library knows. The others are ours.
const CLIENT_PARAMETERS: [&str; 19] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "sslmode",
    "sslnegotiation",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
];

/// A URL in the two parts that are read in different ways.
pub(crate) struct Parts {
    /// Everything before the parameters, with a user and a password that the client library reads as they are meant.
    pub(crate) base: String,
    /// Names and values, as they are written.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Parts {
    /// Takes a URL apart.
    pub(crate) fn of(url: &str) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let rest = base.strip_prefix("postgres://").or_else(|| base.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| {
            Error::invalid(format!(
                "the store's URL does not begin with postgres:// or postgresql://: {FORM}"
            ))
        })?;
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty()).map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (name.to_owned(), value.to_owned())
        });
        Ok(Self { base: format!("postgres://{}", readable(rest)?), parameters: parameters.collect() })
    }
}

/// Refuses an unknown parameter. The error gives its number only, because the parameter may be the end of a
/// password with a `?` in it.
pub(crate) fn known(name: &str, number: usize) -> Result<()> {
    if CLIENT_PARAMETERS.contains(&name) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "parameter {number} of the store's URL is unknown: write postgres://USER@HOST/DATABASE?schema=NAME; a `?` or `&` in a \
         password is written %3F or %26"
    )))
}

/// A user and a password end at the last `@`, as people expect. The client library ends them at the first,
/// and would take what is left of a password for the name of a host, which is shown.
fn readable(rest: &str) -> Result<String> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if path.contains('@') {
        return Err(Error::invalid(format!(
            "the store's URL has an `@` behind a `/`: {FORM}, and %40 and %2F for them in a user, a password or a database"
        )));
    }
    let Some((credentials, hosts)) = authority.rsplit_once('@') else { return Ok(rest.to_owned()) };
    Ok(format!("{}@{hosts}{path}", credentials.replace('@', "%40")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_ends_at_the_last_at_sign() {
        for (url, base) in [
            ("postgres://u:p@q@h/db", "postgres://u:p%40q@h/db"),
            ("postgresql://u@tenant:p@h:1,i:2/db?x=y", "postgres://u%40tenant:p@h:1,i:2/db"),
            ("postgres://h/db", "postgres://h/db"),
            ("postgres://[::1]:5433", "postgres://[::1]:5433"),
        ] {
            assert_eq!(Parts::of(url).unwrap().base, base);
        }
        for bad in ["postgres://u:p/q@h/db", "postgres://h/d@b", "postgres:u:p@h", "host=h password=p"] {
            assert!(Parts::of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parameters_are_known_by_name_and_refused_by_number() {
        assert!(known("connect_timeout", 1).is_ok());
        let told = known("hunter2@h/db", 3).unwrap_err().to_string();
        assert!(told.starts_with("parameter 3 of") && !told.contains("hunter2"), "{told}");
    }
}
