//! How a command line that cannot be understood is told, and a bug.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use clap::Parser as _;
use postrider_core::ErrorKind;

use crate::args::Args;
use crate::{exit, log, secrets, text};

/// Reads the command line, or says why that is not possible and with which code to end.
pub(crate) fn parse() -> Result<Args, ExitCode> {
    let error = match Args::try_parse() {
        Ok(args) => return Ok(args),
        Err(error) => error,
    };
    let typed: Vec<_> = std::env::args_os().collect();
    let code = u8::try_from(error.exit_code()).unwrap_or(exit::USAGE);
    let told =
        match told(&error, &typed, std::env::var_os("POSTRIDER_LOG_FORMAT").is_some_and(|set| set == "json"))
        {
            Some(told) => io::stderr().lock().write_all(told.as_bytes()),
            None => error.print(),
        };
    // If stderr has no reader, there is no place to report that.
    drop(told);
    Err(code.into())
}

/// Has a panic told in one line without anything that was typed: what a bug repeats may be a password.
pub(crate) fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let told = text::shorten(&secrets::hide(&bug(panic), &secrets::typed()), 2_000).into_owned();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = match backtrace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("{backtrace}"),
            _ => String::new(),
        };
        let line = if log::is_json() {
            log::json_line(&told, &[("kind", exit::word_of(ErrorKind::Internal).into())])
        } else {
            format!("error: {}\n{backtrace}", text::escape(&told))
        };
        drop(io::stderr().lock().write_all(line.as_bytes()));
    }));
}

fn bug(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
    let said = panic.payload_as_str().unwrap_or("it does not say why");
    format!("a bug of postrider: {said}{}", place.unwrap_or_default())
}

/// The text for stderr; none if the parser's own, which knows colours, is as good.
fn told(error: &clap::Error, typed: &[OsString], log_is_json: bool) -> Option<String> {
    if !error.use_stderr() {
        return None;
    }
    let typed: Vec<String> = typed.iter().map(|word| secrets::readable(word)).collect();
    let secrets: Vec<String> = typed.iter().cloned().flat_map(secrets::secrets_in).collect();
    let rendered = error.render().to_string();
    let plain = secrets::hide(&rendered, &secrets);
    // Usage and tips follow the message after an empty line.
    let message = plain.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    if typed.iter().any(|word| word == "--json") {
        return Some(exit::error_json("invalid", exit::USAGE, message));
    }
    let asks_json = |pair: &[String]| pair == ["--log-format", "json"];
    if log_is_json || typed.windows(2).any(asks_json) || typed.iter().any(|word| word == "--log-format=json")
    {
        return Some(log::json_line(
            message,
            &[("kind", "invalid".into()), ("exit_code", exit::USAGE.into())],
        ));
    }
    // The parser repeats the command line, and a script may have put text of a producer there.
    let harmless = typed.iter().all(|word| text::escape(word) == word.as_str());
    (!harmless || plain != rendered).then(|| text::escape_lines(&plain) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(words: &[&str]) -> Option<String> {
        let typed: Vec<OsString> = words.iter().map(Into::into).collect();
        told(&Args::try_parse_from(&typed).unwrap_err(), &typed, false)
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

    #[test]
    fn a_log_of_json_lines_has_no_other_lines() {
        let line = told_of(&["postrider", "stats", "--log-format", "json", "--nonsense"]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["level"], &value["exit_code"]), (&"ERROR".into(), &2.into()), "{line}");
    }

    #[test]
    fn a_store_in_the_wrong_place_is_not_repeated() {
        for words in [
            &["postrider", "stats", "postgres://u:hunter2@h/db"][..],
            &["postrider", "stats", "--stor=postgres://u:hunter2@h/db"],
            &["postrider", "emit", "order", "--due", "postgres://u:hunter2@h/db"],
            &["postrider", "stats", "host=h", "password=hunter2"],
        ] {
            let told = told_of(words).unwrap_or_else(|| Args::try_parse_from(words).unwrap_err().to_string());
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
