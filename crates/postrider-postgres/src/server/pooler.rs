//! Whether a pooler is between us and the server, and how to work through it.
//!
//! A pooler in transaction mode, such as PgBouncer, lends a session of the server for one transaction at a
//! time. In the next one, the state of that session is lost or in the hands of another client. So through a
//! pooler nothing of ours outlives a transaction.
//!
//! | what | direct | through a pooler |
//! |---|---|---|
//! | settings | in the startup packet | `set local` in every transaction |
//! | statements | prepared once, by name | sent with their text; only the types of their parameters are remembered, here |
//! | single statements | as they are | between `begin` and `commit`, sent in one piece |
//! | a crash of the server | ends the connection | ends the [era](Pooled) of the connection |
//! | wakes from other processes | could be listened for | polling only |
//!
//! Which way it is, is asked of the first connection and needs no guess: it takes a mark with it in the
//! startup packet. A pooler refuses that, or drops it, and only a session of our own knows the mark
//! afterwards.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures_util::future::maybe_done;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::session::{Parameters, Role};
use crate::server::statement::{Schema, Sql};

/// Whether a pooler stands between this process and the server. In a store's URL: `pooler=detect`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Pooler {
    /// Find out.
    #[default]
    Detect,
    /// One in transaction mode. To say so saves a connection when a store is opened.
    Transaction,
    /// None; a store that meets one all the same is not opened.
    None,
}

impl FromStr for Pooler {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "detect" => Ok(Self::Detect),
            "transaction" => Ok(Self::Transaction),
            "none" => Ok(Self::None),
            // A pooler that lends sessions for longer is none to us, but for what its startup packet may hold.
            "session" | "statement" => Err(Error::invalid(format!(
                "`pooler={text}` is none of `detect`, `transaction` and `none`: behind a pooler in session mode write \
                 `transaction`, which works in both; one in statement mode allows no transactions, without which \
                 nothing works"
            ))),
            _ => Err(Error::invalid("`pooler` in the store's URL must be `detect`, `transaction` or `none`")),
        }
    }
}

/// How a store's connections reach the server: found out by the first of them, followed by all others.
pub(crate) struct Way {
    chosen: Pooler,
    pooled: AtomicBool,
    forms: Mutex<HashMap<Sql, Arc<Form>>>,
}

impl Way {
    pub(crate) fn new(chosen: Pooler) -> Arc<Self> {
        let pooled = AtomicBool::new(chosen == Pooler::Transaction);
        Arc::new(Self { chosen, pooled, forms: Mutex::default() })
    }

    /// Whether a pooler stands between.
    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    /// Notes that one does. It is never forgotten: to work as if there were one is slower, and right in any case.
    pub(crate) fn meet_pooler(&self) -> Result<()> {
        if self.chosen == Pooler::None {
            return Err(Error::invalid(
                "a pooler stands between this process and the server, but the store's URL says `pooler=none`: connect \
                 to the server itself, or leave the parameter out",
            ));
        }
        self.pooled.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn form(&self, sql: Sql) -> Option<Arc<Form>> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).get(&sql).cloned()
    }

    pub(crate) fn keep(&self, sql: Sql, form: Form) -> Arc<Form> {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(forms.entry(sql).or_insert_with(|| Arc::new(form)))
    }
}

/// What is worth mentioning beside the server's version.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_pooled() { ", through a transaction pooler: polling" } else { "" })
    }
}

/// A statement as it travels without a name: its text, and the types of its parameters.
pub(crate) struct Form {
    pub(crate) text: String,
    types: Vec<Type>,
}

impl Form {
    /// What to ask the server so that [`Form::read`] can tell; none if there is nothing to ask. The client
    /// library knows no way to ask without a name, and its names are those of every other process that uses
    /// it.
    pub(crate) fn question(text: &str) -> Option<String> {
        let name = format!("postrider_{}", random());
        text.contains("$1").then(|| {
            format!(
                "prepare {name} as {text}\n; select parameter_types::oid[] from pg_catalog.pg_prepared_statements \
                 where name = '{name}'; deallocate {name}"
            )
        })
    }

    /// The form of a statement, by what the server has answered.
    pub(crate) fn read(text: String, answer: &[SimpleQueryMessage]) -> Result<Self> {
        let types = only_value(answer).unwrap_or("{}").trim_matches(['{', '}']).split(',');
        let types = types.filter(|oid| !oid.is_empty()).map(|oid| oid.parse().ok().and_then(Type::from_oid));
        match types.collect::<Option<Vec<Type>>>() {
            Some(types) => Ok(Self { text, types }),
            None => {
                Err(Error::new(ErrorKind::Internal, format!("a type is not known, of a parameter of {text}")))
            }
        }
    }

    pub(crate) fn typed<'a>(&self, parameters: &Parameters<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
        parameters.iter().copied().zip(self.types.iter().cloned()).collect()
    }
}

/// How one connection reaches the server.
pub(crate) enum Route {
    Direct,
    Pooled(Pooled),
}

/// What a connection through a pooler needs to know.
///
/// It has an *era*: the time in which the server has neither crashed nor been started or replaced. The end of
/// an era ends every direct connection, which much rests upon (see `holding.rs`), but none to a pooler. So
/// each transaction asks for the era on its way, and one that meets another era than that in which the
/// connection was made gives the connection up: all that follows is as if it had been cut. A transaction is
/// of one session, and so of one era.
///
/// The server keeps the era in an unlogged table. Every recovery empties it, including that of a standby which
/// takes over. A connection that finds no era there writes a new one down.
pub(crate) struct Pooled {
    begin: &'static str,
    /// Told to each transaction; it ends with the question for the era.
    pub(crate) prologue: String,
    /// None for those that remember nothing from one transaction to the next.
    era: Option<String>,
    /// Held while the pieces of a transaction are sent, so that those of others do not come between.
    sending: Mutex<()>,
}

impl Pooled {
    pub(crate) fn new(role: Role, schema: &Schema, era: Option<String>) -> Self {
        let begin = if role.is_read_only() {
            "begin isolation level read committed read only; "
        } else {
            "begin isolation level read committed read write; "
        };
        let mut prologue = role.prologue();
        if era.is_some() {
            prologue.push_str(&sql!("server/era_get").text(schema));
        }
        Self { begin, prologue, era, sending: Mutex::default() }
    }

    /// Whether a transaction that was told the prologue is of this connection's era.
    pub(crate) fn is_of_this_era(&self, answer: &[SimpleQueryMessage]) -> bool {
        self.era.is_none() || self.era.as_deref() == only_value(answer)
    }

    /// Makes `call`, which sends one request, in a separate transaction. Returns the answer to the prologue
    /// and the call's answer.
    ///
    /// All of it is sent when this is first polled, or nothing: dropping it leaves no transaction open, and
    /// the caller waits for one round trip only. The answer to `commit` tells nothing, because only calls that
    /// change nothing run like this.
    pub(crate) async fn alone<T>(
        &self,
        client: &Client,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<(Vec<SimpleQueryMessage>, T), tokio_postgres::Error> {
        let script = format!("{}{}", self.begin, self.prologue);
        let mut begin = pin!(maybe_done(client.simple_query(&script)));
        let mut call = pin!(maybe_done(call));
        let mut end = pin!(maybe_done(client.batch_execute("commit")));
        poll_fn(|context| {
            let _turn = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = begin.as_mut().poll(context);
            let _ = call.as_mut().poll(context);
            let _ = end.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
        begin.as_mut().await;
        let began = begin.take_output().expect("it was awaited just now")?;
        call.as_mut().await;
        let answer = call.take_output().expect("it was awaited just now")?;
        Ok((began, answer))
    }
}

/// The value in the last row of an answer, if it has a row.
fn only_value(answer: &[SimpleQueryMessage]) -> Option<&str> {
    answer.iter().rev().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    })
}

/// A random text that no other caller has.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_is_named_by_its_mode() {
        for (text, pooler) in
            [("detect", Pooler::Detect), ("transaction", Pooler::Transaction), ("none", Pooler::None)]
        {
            assert_eq!(text.parse::<Pooler>().unwrap(), pooler);
        }
        for (bad, advice) in [("session", "works in both"), ("statement", "no transactions"), ("", "must be")]
        {
            let message = bad.parse::<Pooler>().unwrap_err().to_string();
            assert!(message.contains(advice), "{message}");
        }
    }

    #[test]
    fn types_are_asked_for_only_where_there_are_parameters() {
        assert!(Form::question("lock table a").is_none());
        assert_ne!(Form::question("select $1"), Form::question("select $1"), "names are used once");
        assert!(Form::read("select".to_owned(), &[]).unwrap().types.is_empty());
    }
}
