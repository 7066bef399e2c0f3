//! Passwords, tokens and keys: where they come from, and that they go nowhere else.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use postrider_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer};
use tracing::warn;

/// Bytes of a secret that is read from a file: a chain of certificates with its key fits.
const SECRET_BYTES_MAX: u64 = 256 * 1024;

/// A secret as config gives it: `env:NAME`, `file:/path`, or the secret itself.
///
/// Parsing reads nothing; [`read`](Secret::read) does, each time it is called, so that a rotated secret is found
/// when a sink is opened again. Neither `Debug` nor `Display` shows a secret, and it cannot be serialized.
///
/// ```
/// use postrider_sinks::Secret;
/// let direct: Secret = "hunter2".parse()?;
/// assert_eq!(direct.to_string(), "***");
/// assert_eq!(direct.read()?.expose(), "hunter2");
/// let variable: Secret = "env:KAFKA_PASSWORD".parse()?;
/// assert_eq!(variable.to_string(), "env:KAFKA_PASSWORD");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Place);

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Here(String),
    Variable(String),
    File(PathBuf),
}

/// A secret that was read, for the one call that needs it.
#[derive(Clone, PartialEq, Eq)]
pub struct Exposed(String);

impl Exposed {
    /// The secret itself. Never put it in a log, an error or an argument of a process.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Secret {
    /// The secret itself, not a place where it is: of a URL's password, for example.
    pub fn here(text: impl Into<String>) -> Self {
        Self(Place::Here(text.into()))
    }

    /// The secret, if it is written here and not in another place.
    #[cfg(feature = "inbox")]
    pub(crate) fn written_here(&self) -> Option<&str> {
        match &self.0 {
            Place::Here(text) => Some(text),
            Place::Variable(_) | Place::File(_) => None,
        }
    }

    /// Reads the secret from its place. A file may end in one line break, which is not part of it.
    pub fn read(&self) -> Result<Exposed> {
        let text = match &self.0 {
            Place::Here(text) => return Ok(Exposed(text.clone())),
            Place::Variable(name) => std::env::var(name).map_err(|error| {
                self.unreadable(match error {
                    std::env::VarError::NotPresent => "is not set: set it for this process",
                    // The error itself holds the content.
                    std::env::VarError::NotUnicode(_) => "is not UTF-8",
                })
            })?,
            Place::File(path) => {
                let mut text = String::new();
                let read = File::open(path)
                    .inspect(|file| warn_if_open(file, path))
                    .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text))
                    .map_err(|error| self.unreadable(&format!("cannot be read: {error}")))?;
                if read as u64 > SECRET_BYTES_MAX {
                    return Err(self.unreadable(&format!("has more than {SECRET_BYTES_MAX} bytes")));
                }
                let line = text.strip_suffix('\n').unwrap_or(&text);
                line.strip_suffix('\r').unwrap_or(line).to_owned()
            }
        };
        if text.is_empty() {
            return Err(self.unreadable("is empty"));
        }
        Ok(Exposed(text))
    }

    fn unreadable(&self, reason: &str) -> Error {
        let place = match &self.0 {
            Place::Here(_) => "the secret".to_owned(),
            Place::Variable(name) => format!("the environment variable `{name}`"),
            Place::File(path) => format!("the file `{}`", path.display()),
        };
        Error::new(ErrorKind::Invalid, format!("a secret cannot be had: {place} {reason}"))
    }
}

/// People are told of a secret that everybody on this machine may read; it is used all the same, since some
/// mount it like that.
fn warn_if_open(file: &File, path: &Path) {
    let is_open = file.metadata().is_ok_and(|found| found.is_file() && found.mode() & 0o007 != 0);
    if is_open {
        warn!(path = %path.display(), "a file with a secret may be read by everybody on this machine: chmod 0600");
    }
}

impl FromStr for Secret {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(Self(match text.split_once(':') {
            Some(("env", name)) if name.is_empty() || name.contains(['=', '\0']) => {
                return Err(Error::invalid("a secret `env:` needs the name of a variable: write env:NAME"));
            }
            Some(("env", name)) => Place::Variable(name.to_owned()),
            Some(("file", path)) if path.is_empty() || path.contains('\0') => {
                return Err(Error::invalid("a secret `file:` needs a path: write file:/run/secrets/name"));
            }
            Some(("file", path)) => Place::File(path.into()),
            _ => Place::Here(text.to_owned()),
        }))
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Here(_) => f.write_str("***"),
            Place::Variable(name) => write!(f, "env:{name}"),
            Place::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exposed(***)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A secret: env:NAME for a variable, file:/path for a file, or the secret itself.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_by_its_place_and_never_by_its_content() {
        let secret: Secret = "canary".parse().unwrap();
        assert!(!format!("{secret} {secret:?} {:?}", secret.read().unwrap()).contains("canary"));
        assert_eq!(secret.read().unwrap().expose(), "canary");
        assert_eq!(Secret::here("env:X").read().unwrap().expose(), "env:X");
    }

    #[test]
    fn a_secret_in_a_file_may_end_in_a_line_break() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let secret: Secret = format!("file:{}", path.display()).parse().unwrap();
        for (content, expected) in [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(secret.read().unwrap().expose(), expected);
        }
        for bad in ["", "\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(secret.read().unwrap_err().to_string().ends_with("is empty"));
        }
        std::fs::write(&path, "x".repeat(SECRET_BYTES_MAX as usize + 1)).unwrap();
        assert!(secret.read().is_err());
    }

    #[test]
    fn a_secret_that_is_not_there_is_told_by_its_place() {
        for (text, place) in [
            ("env:POSTRIDER_TEST_NO_SUCH", "the environment variable `POSTRIDER_TEST_NO_SUCH` is not set"),
            ("file:/no/such", "the file `/no/such` cannot be read"),
        ] {
            let error = text.parse::<Secret>().unwrap().read().unwrap_err();
            assert!(error.to_string().contains(place), "{error}");
        }
        for bad in ["env:", "file:", "env:a=b"] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_variable_is_read() {
        // Cargo sets it for every test.
        let secret: Secret = serde_json::from_str(r#""env:CARGO_PKG_NAME""#).unwrap();
        assert_eq!(secret.read().unwrap().expose(), "postrider-sinks");
    }
}
