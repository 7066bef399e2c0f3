//! What a store tells people, as a test hears it.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, set_default};
use tracing::{Event, Level, Metadata, Subscriber, span};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lines that this test's thread has written since, which is all that its store does.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _listening: DefaultGuard,
}

impl Log {
    pub(crate) fn listen() -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let listening = set_default(Listener(Arc::clone(&lines)));
        Self { lines, _listening: listening }
    }

    /// Waits for a line that contains this.
    pub(crate) async fn until_says(&self, wanted: &str) {
        let said = async {
            while !self.lines.lock().unwrap().iter().any(|line| line.contains(wanted)) {
                // tidy: sleep because a line has no other sign than its being there
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let said = tokio::time::timeout(PATIENCE, said).await;
        assert!(said.is_ok(), "nobody says `{wanted}`: {:?}", self.lines.lock().unwrap());
    }
}

struct Listener(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
