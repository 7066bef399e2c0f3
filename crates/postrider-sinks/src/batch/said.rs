//! What others wrote, such that it can be kept and shown: in bounds, on one line, and without what a terminal obeys.

use std::fmt::Write as _;

/// Bytes of an answer or of a line that are kept with an attempt.
#[cfg(any(feature = "http", feature = "exec"))]
pub(crate) const SAID_BYTES_MAX: usize = 512;

/// Whether a terminal or a reader's eye would be led by it: control characters, those of C1 too, and what
/// turns the direction of text.
pub(crate) fn is_treacherous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The beginning of it as text.
#[cfg(any(feature = "http", feature = "exec"))]
pub(crate) fn beginning(bytes: &[u8], bytes_max: usize) -> String {
    let is_cut = bytes.len() > bytes_max;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(bytes_max)]);
    // A character that was cut in two is no character.
    let text = if is_cut { text.trim_end_matches('\u{FFFD}') } else { &text };
    let mut shown = String::with_capacity(text.len() + 3);
    for c in text.trim().chars() {
        if is_treacherous(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if is_cut {
        shown.push('…');
    }
    shown
}

/// JSON with its treacherous characters as `\uXXXX`: the same value, since such a character can stand only
/// inside of a string.
pub(crate) fn escape_json(json: &mut Vec<u8>) {
    // The first bytes of all of them in UTF-8: DEL, C1, U+061C, and the marks of direction.
    let may_begin = |byte: &u8| matches!(byte, 0x7F | 0xC2 | 0xD8 | 0xE2);
    if !json.iter().any(may_begin) {
        return;
    }
    let Ok(text) = std::str::from_utf8(json) else { return };
    // A line break ends the line; JSON itself has no other control character outside of its strings that matters here.
    let is_meant = |c: char| is_treacherous(c) && c >= '\u{7F}';
    if !text.contains(is_meant) {
        return;
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_meant(c) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    *json = escaped.into_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(feature = "http", feature = "exec"))]
    #[test]
    fn what_was_said_is_cut_and_obeyed_by_no_terminal() {
        assert_eq!(beginning(b" {\"error\": \"no\"}\r\n", 512), "{\"error\": \"no\"}");
        assert_eq!(
            beginning("a\x1b[31m\n\u{9b}\u{202e}ü".as_bytes(), 512),
            "a\\u{1b}[31m\\n\\u{9b}\\u{202e}ü"
        );
        assert_eq!(beginning("aü".as_bytes(), 2), "a…");
        assert_eq!(beginning(b"\xff\xfe", 512), "\u{FFFD}\u{FFFD}");
        assert_eq!(beginning(&[b'x'; 600], 512).len(), 512 + '…'.len_utf8());
    }

    #[test]
    fn json_means_the_same_and_shows_nothing_treacherous() {
        let plain = "{\"a\":\"ü ☕ €\"}\n".as_bytes().to_vec();
        let mut same = plain.clone();
        escape_json(&mut same);
        assert_eq!(same, plain);
        let text = "{\"\u{7f}\":\"a\u{9b}31m\u{202e}\u{2066}\u{200f}z\"}\n";
        let mut json = text.as_bytes().to_vec();
        escape_json(&mut json);
        let shown = String::from_utf8(json).unwrap();
        assert_eq!(shown, "{\"\\u007f\":\"a\\u009b31m\\u202e\\u2066\\u200fz\"}\n");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&shown), read(text));
    }
}
