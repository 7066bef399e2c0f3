//! Statements that a connection has prepared for emitting.

use futures_util::future::BoxFuture;
use futures_util::try_join;
use postrider_core::{Emit, EventId, NewEvent, Result};
use tokio_postgres::{Client, Statement, Transaction};

use super::values::{Form, Values};
use super::{EmitAll, POSTRIDER, TokioPostgres, WHAT, event_insert_all, id_read};
use crate::error::Doing;
use crate::server::statement::Schema;

/// What one connection has prepared, so that the server neither parses nor plans the insert of each event.
///
/// Keep it beside the connection it was made on. On another one it does not work and says so.
///
/// ```no_run
/// # async fn orders(db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use postrider_core::{Event, emit};
/// use postrider_postgres::{Prepared, tokio_postgres};
///
/// let prepared = Prepared::new(db).await?;
/// for order in 0..1_000 {
///     let tx = db.transaction().await?;
///     emit(prepared.on(&tx), Event::new("order").key(order)).await?;
///     tx.commit().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Prepared {
    schema: Schema,
    insert: Statement,
    insert_after: Statement,
    emit: Statement,
}

impl Prepared {
    /// Prepares on `client`, for the schema `postrider`.
    pub async fn new(client: &Client) -> Result<Self> {
        POSTRIDER.prepare(client).await
    }

    /// A transaction of the same connection, to emit through.
    pub fn on<'a>(&'a self, tx: &'a Transaction<'a>) -> PreparedOn<'a> {
        PreparedOn { prepared: self, tx }
    }
}

impl Schema {
    /// Prepares on `client`, for this schema.
    pub async fn prepare(&self, client: &Client) -> Result<Prepared> {
        let prepare = async |form: Form| client.prepare(&form.sql().text(self)).await;
        // Sent together.
        let (insert, insert_after, emit) =
            try_join!(prepare(Form::Insert), prepare(Form::InsertAfter), prepare(Form::Emit))
                .doing("prepare the emitting of events")?;
        Ok(Prepared { schema: self.clone(), insert, insert_after, emit })
    }
}

/// A transaction, and what its connection has prepared. Made by [`Prepared::on`].
#[derive(Clone, Copy)]
pub struct PreparedOn<'a> {
    prepared: &'a Prepared,
    tx: &'a Transaction<'a>,
}

impl<'a> Emit<TokioPostgres> for PreparedOn<'a> {
    type Output = BoxFuture<'a, Result<EventId>>;

    fn emit(self, event: NewEvent) -> Self::Output {
        Box::pin(self.event_insert(event))
    }
}

impl<'a> EmitAll for PreparedOn<'a> {
    type Output = BoxFuture<'a, Result<Vec<EventId>>>;

    /// A statement for a thousand events is not worth keeping.
    fn emit_all(self, events: Vec<NewEvent>) -> Self::Output {
        Box::pin(event_insert_all(self.tx, &self.prepared.schema, events))
    }
}

impl PreparedOn<'_> {
    async fn event_insert(self, event: NewEvent) -> Result<EventId> {
        event.check()?;
        let values = Values::of(&event);
        let statement = match values.form() {
            Form::Insert => &self.prepared.insert,
            Form::InsertAfter => &self.prepared.insert_after,
            Form::Emit => &self.prepared.emit,
        };
        let parameters: Vec<_> = values.parameters().into_iter().map(|(value, _)| value).collect();
        let rows = self.tx.query(statement, &parameters).await.doing(WHAT)?;
        id_read(&rows)
    }
}
