//! Transactional handlers: their writes and the settle of the event commit together, or neither does.

use std::error::Error as StdError;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use postrider_core::{Delivery, Failure, Result};
use tokio_postgres::Transaction;

/// What a transactional handler does inside the transaction of the settle. It must leave the transaction open.
pub type Work = Box<dyn for<'a, 'b> FnOnce(&'a mut Transaction<'b>) -> Working<'a> + Send>;

/// A transactional handler at work.
pub type Working<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// What the function given to [`in_transaction`] returns: its future, boxed.
pub type Handling<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

/// Makes a transactional handler out of a function of the transaction and the event.
///
/// ```
/// use postrider_core::Delivery;
/// use postrider_postgres::{in_transaction, tokio_postgres};
///
/// let handler = in_transaction(|tx: &mut tokio_postgres::Transaction<'_>, event: Delivery| {
///     Box::pin(async move {
///         let order = event.key.as_ref().map(|key| key.as_str());
///         tx.execute("insert into invoice (order_id) values ($1)", &[&order]).await?;
///         Ok::<(), tokio_postgres::Error>(())
///     })
/// });
/// # let _: Box<dyn Fn(Delivery) -> postrider_postgres::Work> = Box::new(handler);
/// ```
pub fn in_transaction<F, E>(handler: F) -> impl Fn(Delivery) -> Work + Clone + Send + Sync + 'static
where
    F: for<'a, 'b> Fn(&'a mut Transaction<'b>, Delivery) -> Handling<'a, E> + Send + Sync + 'static,
    E: Into<Box<dyn StdError + Send + Sync>> + 'static,
{
    let handler = Arc::new(handler);
    move |delivery| {
        let handler = Arc::clone(&handler);
        Box::new(move |tx| {
            let handling = handler(tx, delivery);
            Box::pin(async move {
                handling.await.map_err(|error| {
                    let error: Box<dyn StdError + Send + Sync> = error.into();
                    Failure::from_error(error.as_ref())
                })
            })
        })
    }
}

/// Does the work; a panic is a failure.
pub(crate) async fn work_do(work: Work, tx: &mut Transaction<'_>) -> Result<(), Failure> {
    let working = AssertUnwindSafe(async { work(tx).await });
    working.catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Err(Failure::retry(format!("handler panicked: {text}")))
    })
}
