//! Helpers for the tests of programs that use Postrider (feature `testing`).
//!
//! ```
//! use postrider::testing::{Inline, Scratch, wanted};
//! use postrider::{Delivery, Event, NewSubscription, Worker, emit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! // A store in a temporary file: no server, and gone with the test.
//! let scratch = Scratch::new().await?;
//! let db = scratch.connect()?;
//!
//! // What your program does, in a transaction of its own.
//! emit(&db, Event::new("order").kind("order.created").key(42).payload("{}"))?;
//! scratch.emitted().await?.one(&wanted("order").kind("order.created").key(42));
//!
//! // What your workers do with it, here and now.
//! let path = scratch.path();
//! let worker = Worker::new(NewSubscription::new("mails").topic("order")?).each(move |delivery: Delivery| {
//!     let path = path.clone();
//!     async move {
//!         let db = postrider::sqlite::rusqlite::Connection::open(path)?;
//!         emit(&db, Event::new("mail").kind("mail.sent").key(delivery.id))?;
//!         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//!     }
//! });
//! let summary = Inline::new(&scratch.store()).worker(worker).run().await?;
//! assert_eq!((summary.delivered, summary.failed), (1, 0));
//! scratch.emitted().await?.one(&wanted("mail").kind("mail.sent"));
//! # Ok(()) }
//! ```
//!
//! | file | question it answers |
//! |---|---|
//! | `inline` | what becomes of everything that is due, here and now? |
//! | `emitted` | what was emitted, and what was not? |
//! | `scratch`, `clock` | where do events of a test live, and how does its time pass? |

mod clock;
mod emitted;
mod inline;
#[cfg(feature = "sqlite")]
mod scratch;

pub use clock::TestClock;
pub use emitted::{Emitted, Wanted, wanted};
pub use inline::Inline;
#[cfg(feature = "sqlite")]
pub use scratch::Scratch;
