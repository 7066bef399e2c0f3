//! How values are written for people.
//!
//! Keys, payloads and errors may hold any text that a producer emitted, so nothing reaches a terminal before
//! [`escape`] has seen it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use postrider_core::Timestamp;

/// Makes text harmless for a terminal: what would move the cursor, change colours, reorder or hide
/// characters is written as an escape such as `\n` or `\u{1b}`.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_treacherous) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_treacherous(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// The same for text of several lines, whose line breaks and tabs stay.
pub(crate) fn escape_lines(text: &str) -> String {
    text.lines()
        .map(|line| line.split('\t').map(escape).collect::<Vec<_>>().join("\t"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// JSON on one line, with nothing in it that a terminal obeys.
///
/// In valid JSON, line breaks and tabs occur between tokens only, where they mean nothing, and all
/// other characters that matter here occur in strings only, where `\u` says the same.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\n' | '\r' | '\t') {
            continue;
        }
        if is_treacherous(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' // direction marks
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // direction overrides and isolates
            | '\u{2028}' | '\u{2029}' // line and paragraph separators
            | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' // invisible
            | '\u{e0000}'..='\u{e007f}') // invisible tags
}

/// At most `chars_max` characters, the last of them `…` if something was cut.
pub(crate) fn shorten(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(chars_max).is_none() {
        return Cow::Borrowed(text);
    }
    let cut = text.char_indices().nth(chars_max.saturating_sub(1)).map_or(0, |(at, _)| at);
    Cow::Owned(format!("{}…", &text[..cut]))
}

/// Breaks a text between words so that its lines fit. The first has something of `begun` characters before
/// it; the others begin with `indent`.
pub(crate) fn wrap(text: &str, width: usize, begun: usize, indent: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    let mut column = begun;
    for (index, word) in text.split(' ').enumerate() {
        let chars = word.chars().count();
        if index > 0 && column + 1 + chars > width {
            lines.push('\n');
            lines.push_str(indent);
            column = indent.len();
        } else if index > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += chars;
    }
    lines
}

/// A count with separators: `12,345`. Ids are written without, since people copy them.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 event`, `2 events`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// How often something happened: `once`, `twice`, `3 times`.
pub(crate) fn times(number: u32) -> String {
    match number {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{number} times"),
    }
}

/// A duration, rounded to the largest unit that still says enough: `850 ms`, `80 s`, `2 min`, `5 h`.
pub(crate) fn span(duration: Duration) -> String {
    let millis = (duration.as_micros() + 500) / 1_000;
    if millis < 1_000 {
        return format!("{millis} ms");
    }
    let rounded = |unit: u128| (millis + unit / 2) / unit;
    let (seconds, minutes, hours) = (rounded(1_000), rounded(60_000), rounded(3_600_000));
    match () {
        () if seconds < 90 => format!("{seconds} s"),
        () if minutes < 90 => format!("{minutes} min"),
        () if hours < 36 => format!("{hours} h"),
        () => format!("{} d", rounded(24 * 3_600_000)),
    }
}

/// Where an instant lies, seen from `now`: `3 s ago`, `in 12 s`, and a date once that says more.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    const DATE_FROM: Duration = Duration::from_secs(60 * 24 * 3600);
    const INSTANT: Duration = Duration::from_millis(500);
    let (past, future) = (now.since(at), at.since(now));
    if past.max(future) >= DATE_FROM {
        return moment(at).chars().take(10).collect();
    }
    match () {
        () if past.max(future) < INSTANT => "just now".to_owned(),
        () if future.is_zero() => format!("{} ago", span(whole_seconds(past))),
        () => format!("in {}", span(whole_seconds(future))),
    }
}

/// Half a second or more counts as one: a table of ages is easier to read without milliseconds.
fn whole_seconds(duration: Duration) -> Duration {
    duration.max(Duration::from_secs(1))
}

/// An instant to the second, in UTC.
pub(crate) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text,
    }
}

/// Bytes with a binary unit: `512 bytes`, `1.2 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return counted(number, "byte");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_all_else_stays() {
        for (text, escaped) in [
            ("plain ü 漢 👩‍🚀", "plain ü 漢 👩‍🚀"),
            ("\x1b[31mred", r"\u{1b}[31mred"),
            ("a\r\nb\tc\0", r"a\r\nb\tc\u{0}"),
            ("\u{9b}2J\x7f", r"\u{9b}2J\u{7f}"),
            ("user\u{202e}gpj.exe", r"user\u{202e}gpj.exe"),
            ("\u{2066}\u{2028}\u{feff}\u{e0041}", r"\u{2066}\u{2028}\u{feff}\u{e0041}"),
        ] {
            assert_eq!(escape(text), escaped);
        }
        assert_eq!(escape_lines("a\x1b\n\tb\n"), "a\\u{1b}\n\tb");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let original = "{\n\t\"a\": \"\u{9b}31m\u{202e}\u{7f}\u{e0041}ü\",\r\n \"b\": [1, 2]}";
        let escaped = escape_json(original);
        assert_eq!(escaped, r#"{"a": "\u009b31m\u202e\u007f\udb40\udc41ü", "b": [1, 2]}"#);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&escaped), value(original));
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(shorten("abc", 3), "abc");
        assert_eq!(shorten("abcd", 3), "ab…");
        assert_eq!(shorten("üüüü", 2), "ü…");
        assert_eq!(shorten("ab", 0), "…");
    }

    #[test]
    fn a_long_line_breaks_between_words() {
        assert_eq!(wrap("one two three", 9, 4, "  "), "one\n  two\n  three");
        assert_eq!(wrap("one two three", 80, 7, "  "), "one two three");
        assert_eq!(wrap("averylongword x", 5, 0, ""), "averylongword\nx");
    }

    #[test]
    fn counts_are_grouped_and_nouns_agree() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2].map(|n| counted(n, "event")), ["0 events", "1 event", "2 events"]);
        assert_eq!([1, 2, 3].map(times), ["once", "twice", "3 times"]);
    }

    #[test]
    fn durations_are_rounded_to_what_says_enough() {
        for (millis, text) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (1_400, "1 s"),
            (89_400, "89 s"),
            (89_600, "1 min"),
            (150_000, "3 min"),
            (89 * 60_000, "89 min"),
            (90 * 60_000, "2 h"),
            (35 * 3_600_000, "35 h"),
            (36 * 3_600_000, "2 d"),
            (u64::MAX, "213503982335 d"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text, "{millis}");
        }
    }

    #[test]
    fn instants_are_told_from_now() {
        let now: Timestamp = "2026-11-15T08:30:00Z".parse().unwrap();
        let second = Duration::from_secs(1);
        for (at, text) in [
            (now, "just now"),
            (now.before(second / 4), "just now"),
            (now.before(second * 3 / 4), "1 s ago"),
            (now.before(second * 3), "3 s ago"),
            (now.after(second * 12), "in 12 s"),
            (now.before(second * 7_200), "2 h ago"),
            (now.before(second * 86_400 * 90), "2026-08-17"),
        ] {
            assert_eq!(relative(at, now), text);
        }
        assert_eq!(moment(now.after(second / 3)), "2026-11-15T08:30:00Z");
    }

    #[test]
    fn bytes_have_binary_units() {
        let cases = [(1, "1 byte"), (1_023, "1,023 bytes"), (1_024, "1.0 KiB"), (1_048_575, "1.0 MiB")];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
