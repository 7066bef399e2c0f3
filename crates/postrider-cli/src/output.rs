//! Where text goes: data to stdout, all else to stderr.
//!
//! A command makes a [`View`], which is both the shape of `--json` and, written on a [`Page`], the form
//! for people. Everything put on a page is escaped on the way, so a command cannot forget it.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement, presets};
use postrider_core::{Error, ErrorKind, Result, Timestamp};
use serde::Serialize;

use crate::args::{ColorArg, GlobalArgs};
use crate::config::Problems;
use crate::{exit, log, text};

/// What a command shows: serialized for machines, written on a page for people.
pub(crate) trait View: Serialize {
    /// The text for people, ending with a line break unless it is empty.
    fn human(&self, page: &Page) -> String;
}

/// The two streams of this process and how to write to them.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    page: Page,
    stderr_color: bool,
    /// The terminal's width, if stderr is one.
    stderr_width: Option<u16>,
}

impl Output {
    /// By the global options and by what the streams are connected to.
    pub(crate) fn new(args: &GlobalArgs) -> Self {
        let terminal = io::stdout().is_terminal();
        Self {
            json: args.json,
            quiet: args.quiet > 0,
            page: Page {
                color: wants_color(args.color, terminal),
                width: if terminal { comfy_table::Table::new().width() } else { None },
                now: Timestamp::from(SystemTime::now()),
            },
            stderr_color: wants_color(args.color, io::stderr().is_terminal()),
            stderr_width: io::stderr().is_terminal().then(terminal_width).flatten(),
        }
    }

    /// Shows a command's result on stdout.
    pub(crate) fn show(&self, view: &impl View) -> Result<()> {
        print(&if self.json { json_line(view)? } else { view.human(&self.page) })
    }

    /// Shows what a running command did: on stderr when its stdout carries events.
    pub(crate) fn show_beside_events(&self, view: &impl View) -> Result<()> {
        if self.json {
            eprint_quietly(&json_line(view)?);
        } else if !self.quiet {
            eprint_quietly(&view.human(&self.page));
        }
        Ok(())
    }

    /// A remark for people, on stderr; `--quiet` leaves it out.
    pub(crate) fn note(&self, line: &str) {
        if !self.quiet {
            eprint_quietly(&format!("{}\n", text::escape_lines(line)));
        }
    }

    /// What went wrong, on stderr.
    pub(crate) fn error(&self, error: &Error) {
        if let Some(problems) = error.source().and_then(|source| source.downcast_ref::<Problems>()) {
            return self.problems(error, problems);
        }
        let message = chain(error);
        let (kind, code) = (exit::word_of(error.kind()), exit::code_of(error.kind()));
        if self.json {
            eprint_quietly(&exit::error_json(kind, code, &message));
        } else if log::is_json() {
            eprint_quietly(&log::json_line(&message, &[("kind", kind.into()), ("exit_code", code.into())]));
        } else {
            self.error_line(&message);
        }
    }

    /// An error for people.
    fn error_line(&self, message: &str) {
        let label = paint(self.stderr_color, Role::Bad, "error:");
        let message = text::escape(message);
        let lines = match self.stderr_width {
            Some(width) => text::wrap(&message, usize::from(width), "error: ".len(), "       "),
            None => message.into_owned(),
        };
        eprint_quietly(&format!("{label} {lines}\n"));
    }

    /// The mistakes of a config, one a line.
    fn problems(&self, error: &Error, problems: &Problems) {
        if self.json {
            eprint_quietly(&exit::problems_json(&error.to_string(), problems));
            return;
        }
        for problem in &problems.told {
            if log::is_json() {
                eprint_quietly(&log::json_line(&problem.to_string(), &problem.fields()));
            } else {
                self.error_line(&problem.to_string());
            }
        }
        if problems.more {
            let more = "there may be more mistakes: correct these first";
            if log::is_json() {
                eprint_quietly(&log::json_line(more, &[("exit_code", exit::USAGE.into())]));
            } else {
                self.error_line(more);
            }
        }
    }

    /// What text for people is written on.
    pub(crate) fn page(&self) -> &Page {
        &self.page
    }

    /// Whether remarks on stderr are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether stderr takes colours.
    pub(crate) fn stderr_color(&self) -> bool {
        self.stderr_color
    }
}

/// Writes text to stdout as it is.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(stdout_error)
}

/// How wide the terminal is; none if that is too narrow to break lines.
fn terminal_width() -> Option<u16> {
    let mut table = comfy_table::Table::new();
    table.use_stderr();
    table.width().filter(|width| *width >= 40)
}

fn wants_color(choice: ColorArg, terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match choice {
        ColorArg::Always => true,
        ColorArg::Never => false,
        ColorArg::Auto => {
            terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

fn json_line(view: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string(view).map_err(|error| {
        Error::new(ErrorKind::Internal, "the result cannot be written as JSON").with_source(error)
    })?;
    Ok(text::escape_json(&json) + "\n")
}

/// The message with its causes, each told once.
pub(crate) fn chain(error: &Error) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !message.contains(&cause_text) {
            message.push_str(": ");
            message.push_str(&cause_text);
        }
        next = cause.source();
    }
    message
}

/// Ignores errors: if stderr has no reader, there is no place to report that.
fn eprint_quietly(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The reader of our stdout is gone, as in `postrider event list | head -1`: a reason to stop, no error.
#[derive(Debug)]
struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of stdout is gone")
    }
}

impl StdError for ReaderGone {}

fn stdout_error(error: io::Error) -> Error {
    let failed = Error::new(ErrorKind::Internal, "cannot write to stdout");
    if error.kind() == io::ErrorKind::BrokenPipe {
        failed.with_source(ReaderGone)
    } else {
        failed.with_source(error)
    }
}

/// Whether an error only says that our stdout has lost its reader.
pub(crate) fn is_reader_gone(error: &Error) -> bool {
    error.source().is_some_and(<dyn StdError>::is::<ReaderGone>)
}

/// What a colour stands for; each has one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A title or a column's name.
    Heading,
    /// Done, healthy, running.
    Good,
    /// Waits, is paused, or needs attention some day.
    Waits,
    /// Dead, failed or damaged.
    Bad,
    /// Less important than the rest.
    Faint,
}

fn paint(color: bool, role: Role, text: &str) -> String {
    if !color {
        return text.to_owned();
    }
    let style = match role {
        Role::Heading => Style::new().bold(),
        Role::Good => AnsiColor::Green.on_default(),
        Role::Waits => AnsiColor::Yellow.on_default(),
        Role::Bad => AnsiColor::Red.on_default().bold(),
        Role::Faint => Style::new().dimmed(),
    };
    format!("{style}{text}{style:#}")
}

/// What text for people is written on.
pub(crate) struct Page {
    color: bool,
    /// The terminal's width; none when the output is piped, where lines are as long as they are.
    width: Option<u16>,
    now: Timestamp,
}

impl Page {
    /// A page without colours or width, at a fixed time.
    #[cfg(test)]
    pub(crate) fn plain(now: Timestamp) -> Self {
        Self { color: false, width: None, now }
    }

    /// Text in the colour of its role.
    pub(crate) fn paint(&self, role: Role, text: &str) -> String {
        paint(self.color, role, &text::escape(text))
    }

    /// Where an instant lies, seen from now.
    pub(crate) fn relative(&self, at: Timestamp) -> String {
        text::relative(at, self.now)
    }

    /// Whether an instant is yet to come.
    pub(crate) fn is_future(&self, at: Timestamp) -> bool {
        at > self.now
    }

    /// Where an instant lies, and its date and time.
    pub(crate) fn when(&self, at: Timestamp) -> String {
        let (relative, moment) = (self.relative(at), text::moment(at));
        if moment.starts_with(&relative) { moment } else { format!("{relative} ({moment})") }
    }

    /// A table with a line of headings.
    pub(crate) fn table<const N: usize>(&self, columns: [Column; N]) -> Table {
        let mut table = self.bare_table();
        table.set_header(columns.iter().map(|column| {
            let cell = comfy_table::Cell::new(column.heading).add_attribute(Attribute::Bold);
            cell.set_alignment(column.alignment)
        }));
        for (index, column) in columns.iter().enumerate() {
            if let Some(styled) = table.column_mut(index) {
                styled.set_cell_alignment(column.alignment);
                styled.set_padding((0, 2));
            }
        }
        Table(table)
    }

    /// Names on the left, values on the right.
    pub(crate) fn fields<N: AsRef<str>>(&self, fields: impl IntoIterator<Item = (N, Cell)>) -> String {
        let mut table = self.bare_table();
        for (name, value) in fields {
            table.add_row([Cell::new(name).role(Role::Heading).into_comfy(), value.into_comfy()]);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Table(table).finish()
    }

    fn bare_table(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        match self.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        if self.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    alignment: CellAlignment,
}

impl Column {
    /// For text.
    pub(crate) const fn left(heading: &'static str) -> Self {
        Self { heading, alignment: CellAlignment::Left }
    }

    /// For ids and counts.
    pub(crate) const fn right(heading: &'static str) -> Self {
        Self { heading, alignment: CellAlignment::Right }
    }
}

/// One cell: text that has been made harmless, and perhaps a colour.
pub(crate) struct Cell {
    text: String,
    role: Option<Role>,
}

impl Cell {
    /// Longest text in a table's cell; `show` tells it in full.
    const CHARS_MAX: usize = 48;

    /// The whole text, escaped.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: text::escape(text.as_ref()).into_owned(), role: None }
    }

    /// The beginning of a text that may be long.
    pub(crate) fn short(text: impl AsRef<str>) -> Self {
        // Cut first and once more after escaping: the text may be a megabyte, and escapes make it longer.
        let cut = text::shorten(text.as_ref(), Self::CHARS_MAX + 1);
        Self { text: text::shorten(&text::escape(&cut), Self::CHARS_MAX).into_owned(), role: None }
    }

    /// A count; zero is faint, so that a table shows at a glance what is there.
    pub(crate) fn count(number: u64) -> Self {
        let role = (number == 0).then_some(Role::Faint);
        Self { text: text::count(number), role }
    }

    /// A count that colours its cell unless it is zero.
    pub(crate) fn alarming(number: u64, role: Role) -> Self {
        if number == 0 { Self::count(0) } else { Self::count(number).role(role) }
    }

    /// With the colour of a role.
    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }

    fn into_comfy(self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(self.text);
        match self.role {
            None => cell,
            Some(Role::Heading) => cell.add_attribute(Attribute::Bold),
            Some(Role::Good) => cell.fg(Color::DarkGreen),
            Some(Role::Waits) => cell.fg(Color::DarkYellow),
            Some(Role::Bad) => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            Some(Role::Faint) => cell.add_attribute(Attribute::Dim),
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// A table in the making.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// Adds a line.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.0.add_row(cells.map(Cell::into_comfy));
    }

    /// The text, without blanks at the ends of lines.
    pub(crate) fn finish(&self) -> String {
        let mut text = self.0.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        Page::plain("2026-11-15T08:30:00Z".parse().unwrap())
    }

    #[test]
    fn tables_are_aligned_and_their_content_is_escaped() {
        let mut table = page().table([Column::right("ID"), Column::left("KEY"), Column::right("DEAD")]);
        table.row(["7".into(), "a\x1b[2J\nb".into(), Cell::count(0)]);
        table.row(["1234".into(), Cell::short("x".repeat(1_000_000)), Cell::count(12_345)]);
        let expected = format!(
            "  ID  KEY{}      DEAD\n   7  a\\u{{1b}}[2J\\nb{}0\n1234  {}…  12,345\n",
            " ".repeat(43),
            " ".repeat(42),
            "x".repeat(47)
        );
        assert_eq!(table.finish(), expected);
    }

    #[test]
    fn colours_are_used_only_where_they_are_wanted() {
        let mut colored = Page { color: true, ..page() };
        assert_eq!(colored.paint(Role::Bad, "dead"), "\x1b[1m\x1b[31mdead\x1b[0m");
        let mut table = colored.table([Column::left("A")]);
        table.row([Cell::new("x").role(Role::Bad)]);
        assert!(table.finish().contains("\x1b["));
        colored.color = false;
        let mut table = colored.table([Column::left("A")]);
        table.row([Cell::new("x").role(Role::Bad)]);
        assert_eq!(table.finish(), "A\nx\n");
        assert!(wants_color(ColorArg::Always, false) && !wants_color(ColorArg::Never, true));
        assert!(!wants_color(ColorArg::Auto, false));
    }

    #[test]
    fn on_a_terminal_lines_fit_its_width() {
        let narrow = Page { width: Some(20), ..page() };
        let mut table = narrow.table([Column::left("A"), Column::left("B")]);
        table.row(["several words to wrap".into(), "and some more of them".into()]);
        assert!(table.finish().lines().all(|line| line.chars().count() <= 20));
    }

    #[test]
    fn an_error_tells_its_causes_once() {
        let cause = io::Error::other("disk full");
        let error = Error::new(ErrorKind::Unavailable, "cannot write").with_source(cause);
        assert_eq!(chain(&error), "cannot write: disk full");
        let told = Error::new(ErrorKind::Unavailable, "cannot write: disk full")
            .with_source(io::Error::other("disk full"));
        assert_eq!(chain(&told), "cannot write: disk full");
    }

    #[test]
    fn a_reader_that_left_is_told_from_a_full_disk() {
        assert!(is_reader_gone(&stdout_error(io::ErrorKind::BrokenPipe.into())));
        assert!(!is_reader_gone(&stdout_error(io::ErrorKind::StorageFull.into())));
    }

    #[test]
    fn instants_are_shown_relative_and_absolute() {
        let at = "2026-11-15T08:29:57.123Z".parse().unwrap();
        assert_eq!(page().when(at), "3 s ago (2026-11-15T08:29:57Z)");
        let old = "2020-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(page().when(old), "2020-01-01T00:00:00Z");
    }
}
