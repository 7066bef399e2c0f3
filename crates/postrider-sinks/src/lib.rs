//! Where Postrider sends events.
//!
//! Each sink is one file that implements [`Sink`](postrider_core::Sink). A sink never sees the store: it
//! gets a batch of deliveries and says what became of each.
//!
//! | file | question it answers |
//! |---|---|
//! | [`spec`] | which sink does a text such as `file:events.jsonl` name? |
//! | [`envelope`] | what does an event look like to a receiver? |
//! | `append` | how does a batch of lines reach a device whole, in order, and before the ack? |
//! | [`stdout`], [`mod@file`], [`null`] | the sinks themselves |
//!
//! ```
//! # async fn run() -> postrider_core::Result<()> {
//! use postrider_sinks::SinkSpec;
//! let spec: SinkSpec = "null".parse()?;
//! let sink = spec.open()?;
//! # Ok(()) }
//! ```

mod append;
pub mod envelope;
pub mod file;
pub mod null;
pub mod spec;
pub mod stdout;

pub use file::FileSink;
pub use null::NullSink;
pub use spec::{AnySink, SinkSpec};
pub use stdout::StdoutSink;
