//! Hostile rows, made from a seed: sizes, characters, nesting, names, times, headers.

/// A row as plain SQL may write it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// What is odd about it.
    pub(crate) about: &'static str,
    pub(crate) topic: String,
    pub(crate) kind: String,
    pub(crate) key: Option<String>,
    pub(crate) headers: Option<String>,
    pub(crate) payload: Blob,
    pub(crate) created_at: Time,
    pub(crate) due_at: Time,
}

#[derive(Debug, Clone)]
pub(crate) enum Blob {
    Text(String),
    Bytes(Vec<u8>),
}

/// An instant; one that is no date, if any.
#[derive(Debug, Clone)]
pub(crate) enum Time {
    None,
    Never,
    Ancient,
}

impl Row {
    /// One that nothing is odd about.
    pub(crate) fn plain() -> Self {
        Self {
            about: "nothing",
            topic: "order".to_owned(),
            kind: "order.created".to_owned(),
            key: None,
            headers: None,
            payload: Blob::Text("{}".to_owned()),
            created_at: Time::None,
            due_at: Time::None,
        }
    }
}

/// So many rows, the same for the same seed. One in ten is odd in two ways.
pub(crate) fn corpus(seed: u64, rows: usize) -> Vec<Row> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..rows)
        .map(|n| {
            let mut row = Row { key: Some(format!("n{}", n % 7)), ..Row::plain() };
            for _ in 0..if n % 10 == 0 { 2 } else { 1 } {
                spoil(&mut row, &mut rng);
            }
            row
        })
        .collect()
}

const WAYS: usize = 12;

fn spoil(row: &mut Row, rng: &mut fastrand::Rng) {
    match rng.usize(..WAYS) {
        0 => (row.about, row.topic) = ("size of the topic", text(rng, &[0, 255, 256, 1_000, 100_000])),
        1 => (row.about, row.kind) = ("size of the type", text(rng, &[0, 255, 256, 9_000])),
        2 => {
            let sizes = [0, 1_024, 1_025, 2_880, 9_000, 500_000];
            (row.about, row.key) = ("size of the key", Some(text(rng, &sizes)));
        }
        3 => (row.about, row.topic) = ("characters of the topic", odd(rng)),
        4 => (row.about, row.kind) = ("characters of the type", odd(rng)),
        5 => (row.about, row.key) = ("characters of the key", Some(odd(rng))),
        6 => {
            let count = pick(rng, &[64, 65, 1_000, 20_000]);
            let pairs: Vec<String> = (0..count).map(|n| format!("\"h{n}\":\"v\"")).collect();
            (row.about, row.headers) = ("number of headers", Some(format!("{{{}}}", pairs.join(","))));
        }
        7 => {
            let value = text(rng, &[16_000, 16_384, 130_000, 400_000]);
            (row.about, row.headers) = ("size of headers", Some(format!("{{\"h\":\"{value}\"}}")));
        }
        8 => (row.about, row.headers) = ("shape of headers", Some(headers(rng))),
        9 => (row.about, row.payload) = ("size of the payload", Blob::Text(json_of(rng))),
        10 => (row.about, row.payload) = ("content of the payload", content(rng)),
        _ => {
            row.about = "times";
            let time = if rng.bool() { Time::Never } else { Time::Ancient };
            if rng.bool() {
                row.due_at = time;
            } else {
                row.created_at = time;
            }
        }
    }
}

fn pick<T: Copy>(rng: &mut fastrand::Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// A text of one of these sizes; half of them cannot be compressed.
fn text(rng: &mut fastrand::Rng, sizes: &[usize]) -> String {
    let size = pick(rng, sizes);
    if rng.bool() { "A".repeat(size) } else { (0..size).map(|_| rng.alphanumeric()).collect() }
}

/// A JSON string of about one of some sizes.
fn json_of(rng: &mut fastrand::Rng) -> String {
    let size = pick(rng, &[1 << 20, (1 << 20) + 1, 3 << 20]);
    format!("\"{}\"", "p".repeat(size - 2))
}

/// Text that careless code might trip over.
fn odd(rng: &mut fastrand::Rng) -> String {
    let texts = [
        "*",
        "order.>",
        "a b",
        "a\nb",
        "\r\nInjected: yes",
        "\u{1b}]0;pwned\u{7}",
        "\u{202e}gnp.exe",
        "Zoë 😀",
        "'; drop table postrider.event; --",
        "../../../etc/passwd",
        "{topic}{key}",
        "%00%0a",
        "$1",
        "\\\\x00",
        "\u{1}\u{2}\u{3}",
        "null",
        "-1",
    ];
    pick(rng, &texts).to_owned()
}

fn headers(rng: &mut fastrand::Rng) -> String {
    let deep = |depth: usize| format!("{{\"h\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    match rng.usize(..10) {
        0 => "null".to_owned(),
        1 => "[1,2]".to_owned(),
        2 => "\"text\"".to_owned(),
        3 => "{\"n\":1,\"t\":true,\"x\":null,\"o\":{\"a\":[]}}".to_owned(),
        4 => "{\"a\":\"1\",\"a\":\"2\",\"a\":\"3\"}".to_owned(),
        5 => deep(3_000),
        6 => deep(50),
        7 => "{\"\":\"\",\"a:b\":\"c\",\"ü\":\"é\"}".to_owned(),
        8 => {
            "{\"postrider-priority\":\"999999999999999999999\",\"postrider-expires-at\":\"soon\"}".to_owned()
        }
        _ => "{\"h\":\"a\\nb\\u0001\",\"traceparent\":\"zz\"}".to_owned(),
    }
}

fn content(rng: &mut fastrand::Rng) -> Blob {
    match rng.usize(..6) {
        0 => Blob::Bytes(Vec::new()),
        1 => Blob::Bytes(vec![0; 1_000]),
        2 => Blob::Bytes((0..1_000).map(|_| rng.u8(..)).collect()),
        3 => Blob::Text(format!("{}1{}", "[".repeat(60_000), "]".repeat(60_000))),
        4 => Blob::Text("{\"path\":\"C:\\\\new\",\"q\":\"\\\"\"}".to_owned()),
        _ => Blob::Text("1234567890".repeat(6)),
    }
}
