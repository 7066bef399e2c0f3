//! From options to a connection that is fit for use, and by which way it goes.

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::{Client, IsolationLevel};
use tracing::debug;

use crate::error::Doing;
use crate::options::PostgresOptions;
use crate::server::connect::{Connection, connect, connect_told};
use crate::server::pooler::{Pooled, Route, Way, random};
use crate::server::session::Role;
use crate::server::settings::{PATH_LOCAL, Scope};
use crate::server::statement::Schema;

/// The oldest server that has what the protocol needs.
const SERVER_MIN: i32 = 140_000;

/// Connects, directly unless a pooler is known to stand between or is met, and refuses a server that cannot be used.
pub(crate) async fn reach(options: &PostgresOptions, way: &Way, role: Role) -> Result<(Client, Route)> {
    if !way.is_pooled() {
        if let Some(client) = direct(options, role).await? {
            return Ok((client, Route::Direct));
        }
        way.meet_pooler()?;
    }
    let (mut client, connection) = connect(options, role.name()).await?;
    attend(connection, role);
    fit(&client, role).await?;
    let era = match role {
        // What they have seen of the log, or settled, is remembered from one transaction to the next.
        Role::Reader | Role::Writer | Role::Worker => Some(era(&mut client, &options.schema).await?),
        Role::Keeper | Role::Settler | Role::Claimer | Role::Operator | Role::Retention => None,
    };
    Ok((client, Route::Pooled(Pooled::new(role, &options.schema, era))))
}

/// A session that only we use; none if a pooler answers, which lends sessions.
async fn direct(options: &PostgresOptions, role: Role) -> Result<Option<Client>> {
    let mark = random();
    let settings = format!("{} -c postrider.session={mark}", role.startup());
    let Some((client, connection)) = connect_told(options, role.name(), &settings).await? else {
        return Ok(None);
    };
    attend(connection, role);
    if fit(&client, role).await? != Some(mark) {
        return Ok(None);
    }
    if let Some(flush) = role.flush(Scope::Session) {
        client.batch_execute(&flush).await.doing("have commits flushed")?;
    }
    Ok(Some(client))
}

/// Moves the bytes of a connection until it ends.
fn attend(connection: Connection, role: Role) {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(%error, role = role.name(), "a connection was lost");
        }
    });
}

/// Refuses a server that is too old, and one that is a standby: there snapshots come in another order. The
/// mark that the session knows, if it knows one.
async fn fit(client: &Client, role: Role) -> Result<Option<String>> {
    let what = "ask the server what it is";
    let question = "select pg_catalog.current_setting('server_version_num')::int, pg_catalog.pg_is_in_recovery(), \
                    pg_catalog.current_setting('postrider.session', true)";
    let row = client.query_typed_one(question, &[]).await.doing(what)?;
    let (version, standby): (i32, bool) = (row.try_get(0).doing(what)?, row.try_get(1).doing(what)?);
    if version < SERVER_MIN {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("this server is PostgreSQL {}: Postrider needs 14 or newer", version / 10_000),
        ));
    }
    if standby {
        let message = format!("this server is a standby ({}): connect to the primary", role.name());
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    row.try_get(2).doing(what)
}

/// The server's era; a new one if it has none.
async fn era(client: &mut Client, schema: &Schema) -> Result<String> {
    let what = "find out whether the server has crashed";
    let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).read_only(false);
    let tx = begin.start().await.doing(what)?;
    tx.batch_execute(PATH_LOCAL).await.doing(what)?;
    tx.execute_typed(&sql!("server/era_put").text(schema), &[]).await.doing(what)?;
    let row = tx.query_typed_one(&sql!("server/era_get").text(schema), &[]).await.doing(what)?;
    tx.commit().await.doing(what)?;
    row.try_get(0).doing(what)
}
