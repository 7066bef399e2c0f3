//! The texts of statements.

/// A statement without the comment lines that it begins with.
pub(crate) const fn without_header(mut text: &'static str) -> &'static str {
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
        assert!(sql!("event_insert").starts_with("insert into postrider_event"));
    }
}
