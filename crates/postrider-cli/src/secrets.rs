//! What was typed and may hold a password never comes out again: not in a usage error, not in a panic.

use std::ffi::OsStr;

/// What stands for a word that is not repeated.
const HIDDEN: &str = "***";

/// The words of this process's command line that may hold a secret, and the store that its environment names.
pub(crate) fn typed() -> Vec<String> {
    let words = std::env::args_os().skip(1).map(|word| readable(&word));
    let set = std::env::var_os("POSTRIDER_STORE").map(|word| readable(&word));
    words.chain(set).flat_map(secrets_in).collect()
}

/// The text of a word, as far as it is text.
pub(crate) fn readable(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

/// The text without these words.
pub(crate) fn hide(text: &str, secrets: &[String]) -> String {
    let mut secrets: Vec<&String> = secrets.iter().filter(|secret| !secret.is_empty()).collect();
    // A short one may be a part of a long one.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

/// A word that may hold a secret, in the forms in which it may be repeated: as a whole, and without the
/// option before it.
pub(crate) fn secrets_in(word: String) -> Vec<String> {
    let lower = word.to_ascii_lowercase();
    let is_login = word.contains('@') && word.contains(':');
    if !is_login && !["password", "passwd", "secret", "token"].iter().any(|name| lower.contains(name)) {
        return Vec::new();
    }
    let value =
        word.strip_prefix("--").and_then(|option| option.split_once('=')).map(|(_, value)| value.to_owned());
    // An option without a value is only a name.
    if word.starts_with("--") && value.is_none() {
        return Vec::new();
    }
    value.into_iter().chain([word]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_not_repeated() {
        let hidden = |words: &[&str], text: &str| {
            let secrets: Vec<_> = words.iter().flat_map(|word| secrets_in((*word).to_owned())).collect();
            hide(text, &secrets)
        };
        let url = "postgres://u:hunter2@h/db";
        assert_eq!(
            hidden(&[url], "unexpected argument 'postgres://u:hunter2@h/db'"),
            "unexpected argument '***'"
        );
        assert_eq!(hidden(&[&format!("--stor={url}")], &format!("'--stor={url}' {url}")), "'***' ***");
        assert_eq!(hidden(&["password=hunter2"], "'password=hunter2'"), "'***'");
        assert_eq!(hidden(&["--due", "soon"], "invalid value 'soon'"), "invalid value 'soon'");
    }
}
