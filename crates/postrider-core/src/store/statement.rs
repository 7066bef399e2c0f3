//! The texts that a store sends to its database: one statement a file, below a head of comments for people.

/// A statement without the comment lines that it begins with. Store crates let the compiler do it, since prepared
/// statements are looked up by their text.
///
/// ```
/// use postrider_core::statement::without_header;
/// const LIST: &str = without_header("-- All of them.\nselect id from event");
/// assert_eq!(LIST, "select id from event");
/// ```
pub const fn without_header(mut text: &'static str) -> &'static str {
    while let [b'-', b'-', ..] = text.as_bytes() {
        let mut end = 0;
        while end < text.len() && text.as_bytes()[end] != b'\n' {
            end += 1;
        }
        if end == text.len() {
            return "";
        }
        text = text.split_at(end + 1).1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_goes_and_the_statement_stays() {
        assert_eq!(without_header("-- a\n-- b\nselect 1 -- c\n"), "select 1 -- c\n");
        assert_eq!(without_header("select 1"), "select 1");
        assert_eq!(without_header("-- a"), "");
    }
}
