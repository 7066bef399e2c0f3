//! How a command line that cannot be understood is told.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::{exit, text};

/// Reads the command line, or says why that is not possible and with which code to end.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let error = match Args::try_parse() {
        Ok(args) => return Ok(args),
        Err(error) => error,
    };
    let typed: Vec<_> = std::env::args().collect();
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    let told = match told(&error, &typed) {
        Some(told) => io::stderr().lock().write_all(told.as_bytes()),
        None => error.print(),
    };
    // Nobody may be listening, and then there is nobody to tell.
    drop(told);
    Err(code.into())
}

/// The text for stderr; none if the parser's own, which knows colours, is as good.
fn told(error: &clap::Error, typed: &[String]) -> Option<String> {
    if !error.use_stderr() {
        return None;
    }
    let plain = error.render().to_string();
    if typed.iter().any(|word| word == "--json") {
        // Usage and tips follow the message after an empty line.
        let message = plain.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        return Some(exit::error_json("invalid", exit::USAGE, message));
    }
    // The parser repeats what was typed, and a script may have typed what somebody emitted.
    let harmless = typed.iter().all(|word| text::escape(word) == word.as_str());
    (!harmless).then(|| text::escape_lines(&plain) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(words: &[&str]) -> Option<String> {
        let typed: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        told(&Args::try_parse_from(&typed).unwrap_err(), &typed)
    }

    #[test]
    fn machines_get_json_and_terminals_nothing_that_they_obey() {
        let json = told_of(&["postrider", "emit", "order", "--due", "soon", "--json"]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["error"]["exit_code"], 2);
        assert!(
            value["error"]["message"].as_str().unwrap().starts_with("invalid value 'soon' for '--due"),
            "{json}"
        );
        let evil = told_of(&["postrider", "emit", "order", "--due", "\x1b[2J\u{9b}2J"]).unwrap();
        assert!(evil.contains(r"\u{9b}2J") && !evil.contains('\x1b'), "{evil}");
        assert_eq!(told_of(&["postrider", "emit", "order", "--due", "soon"]), None);
        assert_eq!(told_of(&["postrider", "--help", "--json"]), None);
    }
}
