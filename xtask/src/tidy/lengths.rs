//! Functions fit on a screen, files hold one concept.

use super::tree::{TextFile, Tree, Violation};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// A function outside tests has at most 70 lines, its signature included.
pub(crate) fn functions(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust() {
        for function in &source.functions {
            let first = *function.lines.start();
            let lines = function.lines.end() - first + 1;
            if lines > FUNCTION_LINES_MAX && !source.is_test(first) && !file.excuses(first, "long") {
                let advice = format!(
                    "`{}` has {lines} lines, the limit is {FUNCTION_LINES_MAX}: split it, or write `// tidy: long because …` above it",
                    function.name
                );
                violations.push(file.violation(first, "long-function", advice));
            }
        }
    }
    violations
}

/// A Rust file has at most 600 lines of code outside tests, or says at its head why it has more.
pub(crate) fn files(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (file, source) in tree.rust() {
        let whole = source.is_test(0);
        let counts = |number: usize| whole || !source.is_test(number);
        let lines = code_lines(file).filter(|number| counts(*number)).count();
        if lines > FILE_LINES_MAX && !says_why(file) {
            let advice = format!(
                "{lines} lines of code, the limit is {FILE_LINES_MAX}: split it, or write `//! tidy: long file: …` at its head"
            );
            violations.push(file.violation(1, "long-file", advice));
        }
    }
    violations
}

/// The numbers of the lines that are neither empty nor comments.
fn code_lines(file: &TextFile) -> impl Iterator<Item = usize> {
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    file.text.lines().enumerate().filter(move |(_, line)| is_code(line)).map(|(index, _)| index + 1)
}

fn says_why(file: &TextFile) -> bool {
    let mut head = file.text.lines().take_while(|line| line.starts_with("//!"));
    head.any(|line| line.split_once("tidy: long file: ").is_some_and(|(_, why)| !why.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_seventy_lines_passes_and_one_more_does_not() {
        check(functions, &[("crates/a/src/lib.rs", &function(70))], &[]);
        check(functions, &[("crates/a/src/lib.rs", &function(71))], &["crates/a/src/lib.rs:1"]);
        let method = format!("impl A {{\n#[x]\n{}}}", function(71));
        check(functions, &[("crates/a/src/lib.rs", &method)], &["crates/a/src/lib.rs:3"]);
    }

    #[test]
    fn tests_and_excused_functions_may_be_longer() {
        let long = function(71);
        check(functions, &[("crates/a/tests/main.rs", &long)], &[]);
        check(functions, &[("crates/a/src/lib.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}"))], &[]);
        check(functions, &[("a.rs", &format!("// tidy: long because it is a table\n{long}"))], &[]);
    }

    #[test]
    fn a_file_above_six_hundred_lines_needs_a_reason_and_tests_do_not_count() {
        let code = "const A: u8 = 1;\n".repeat(600);
        let comments = "// Why.\n\n".repeat(50);
        let tests = "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n";
        check(files, &[("a.rs", &format!("{comments}{code}"))], &[]);
        check(files, &[("a.rs", &format!("{code}const B: u8 = 1;\n{tests}"))], &["a.rs:1"]);
        check(
            files,
            &[("a.rs", &format!("//! tidy: long file: one machine\n{code}const B: u8 = 1;\n"))],
            &[],
        );
    }

    #[test]
    fn a_file_of_tests_counts_as_a_whole() {
        let code = "const A: u8 = 1;\n".repeat(601);
        check(files, &[("crates/a/tests/main.rs", &code)], &["crates/a/tests/main.rs:1"]);
    }
}
