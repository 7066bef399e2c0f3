//! From a store's URL to the store itself: the one place that knows the concrete stores.

use std::fmt;
use std::time::Duration;

use postrider_core::store::Wake;
use postrider_core::{Error, ErrorKind, Result};
use postrider_postgres::{
    AdoptProgress, Adopted, OverBudget, PostgresOptions, PostgresStore, RoleKind, Roles, Source, TwoPhase,
};
use postrider_runtime::Summary;
use postrider_sinks::Secret;
use postrider_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::mpsc;

use crate::args::{
    OverBudgetArg, STORE_DEFAULT, SourceArg, SourceArgs, StoreCommand, SubscriptionArgs, WakeArg,
};
use crate::commands::relay::{self, Orders, Outlook, Post, StoreSpec, Word};
use crate::commands::store::{AdoptedView, RoleView, RolesView, Script, WakeView};
use crate::commands::{self, Absent, Action, Context, FirstLook};
use crate::exit;
use crate::progress::Progress;

/// Which store a URL names.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    /// A file. The URL holds no secret.
    Sqlite(String),
    /// A server. The URL may hold a password; what is shown is what its options show.
    Postgres(Box<PostgresOptions>),
}

impl StoreUrl {
    /// Reads what was typed or set: a URL, or `env:NAME` or `file:PATH`, where it is.
    pub(crate) fn typed(written: &str) -> Result<Self> {
        Self::parse(&url_of(written)?)
    }

    /// Reads a URL. Errors repeat nothing of it but a scheme, since any part may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        const FORMS: &str = "write sqlite://FILE or postgres://USER@HOST/DATABASE";
        let is_scheme = |text: &str| {
            text.len() <= 20
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Self::Sqlite(url.to_owned())),
            Some("postgres" | "postgresql") => {
                let options = PostgresOptions::from_url(url)?.libpq_password();
                Ok(Self::Postgres(Box::new(options)))
            }
            Some(scheme) if is_scheme(scheme) => Err(Error::invalid(format!(
                "the store URL begins with `{scheme}://`, which is unknown: {FORMS}"
            ))),
            _ if url.starts_with("sqlite:") => Ok(Self::Sqlite(url.to_owned())),
            _ if url.is_empty() => Err(Error::invalid(format!("the store URL is empty: {FORMS}"))),
            _ if is_file_name(url) => Err(Error::invalid(format!(
                "`{url}` is not a store URL: write sqlite://{url} for a file of this name"
            ))),
            _ if url.contains('=') => Err(Error::invalid(format!(
                "the store is not named by pairs such as host=HOST: {FORMS}, or env:NAME or file:PATH for where that is written"
            ))),
            _ => Err(Error::invalid(format!(
                "what names the store is no URL: {FORMS}, or env:NAME or file:PATH for where that is written"
            ))),
        }
    }

    /// The `--store` option that a suggested command needs to reach the same store, with a blank before
    /// it; empty for the default store.
    pub(crate) fn option(&self) -> String {
        match self {
            Self::Sqlite(url) if url == STORE_DEFAULT => String::new(),
            Self::Sqlite(url) => format!(" --store {}", shell_quoted(url)),
            Self::Postgres(_) => " --store $POSTRIDER_STORE".to_owned(),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(url) => f.write_str(url),
            Self::Postgres(options) => options.fmt(f),
        }
    }
}

/// Whether something is the name of a database's file and nothing else.
fn is_file_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    text.chars().all(is_plain) && [".db", ".sqlite", ".sqlite3"].iter().any(|ending| text.ends_with(ending))
}

/// The URL itself, read from where it is written.
pub(crate) fn url_of(written: &str) -> Result<String> {
    let read = written.parse::<Secret>().and_then(|secret| secret.read());
    read.map(|url| url.expose().to_owned())
        .map_err(|error| Error::new(error.kind(), format!("the store URL: {error}")))
}

fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/:._-+=@%,".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Opens the store and runs a command on it.
pub(crate) async fn dispatch(action: Action, context: &Context<'_>) -> Result<u8> {
    match &context.store_url {
        StoreUrl::Sqlite(url) => {
            if let Action::Store(StoreCommand::Migrate { sql: true, transaction }) = action {
                let sql = if transaction {
                    postrider_sqlite::schema_transaction_sql()
                } else {
                    postrider_sqlite::schema_sql()
                };
                let script = Script { sql };
                return context.output.show(&script).map(|()| exit::OK);
            }
            if let Some(told) = only_postgres(&action) {
                return Err(Error::invalid(told));
            }
            let options = SqliteOptions::from_url(url)?
                .create(action.absent_store() == Absent::Create)
                .check(action.first_look() == FirstLook::Thorough);
            let is_new = !options.path().exists();
            let store = SqliteStore::open(options).await?;
            if is_new {
                context.output.note(&format!("created {}", context.store_url));
            }
            let done = commands::run(&store, action, context).await;
            store.close().await;
            done
        }
        StoreUrl::Postgres(options) => {
            if let Action::Store(StoreCommand::Migrate { sql: true, transaction }) = action {
                let write = if transaction {
                    postrider_postgres::schema_transaction_sql
                } else {
                    postrider_postgres::schema_sql
                };
                let script = Script { sql: write(options.schema_name())? };
                return context.output.show(&script).map(|()| exit::OK);
            }
            let options = (**options).clone().migrate(action.absent_store() == Absent::Create);
            if let Action::Store(StoreCommand::Roles { prefix, sql }) = action {
                return roles(options, prefix, sql, context).await;
            }
            if let Action::Store(StoreCommand::Adopt) = action {
                let adopted = AdoptedView::new(adopt(options, context).await?);
                return context.output.show(&adopted).map(|()| exit::OK);
            }
            let store = PostgresStore::open(options).await?;
            if let Action::Store(StoreCommand::Wake { wake, no_two_phase }) = action {
                let two_phase = if no_two_phase { TwoPhase::Unused } else { TwoPhase::Refuse };
                return wake_set(&store, wake, two_phase, context).await;
            }
            match action {
                Action::Store(StoreCommand::Source(command)) => {
                    commands::source::source(&store, command, context).await
                }
                Action::Store(StoreCommand::Outbox(command)) => {
                    commands::source::outbox(&store, command, context).await
                }
                action => commands::run(&store, action, context).await,
            }
        }
    }
}

/// Events that an adoption renumbers at a time.
const ADOPT_BATCH: u32 = 20_000;

/// Adopts a store, and shows how far that has come.
async fn adopt(options: PostgresOptions, context: &Context<'_>) -> Result<Option<Adopted>> {
    let progress = Progress::new(context.output, None);
    let mut shown = 0;
    let told = |now: AdoptProgress| {
        let done = now.looked_through + now.renumbered;
        progress.advance(done.saturating_sub(std::mem::replace(&mut shown, done)));
    };
    PostgresStore::adopt_with(options, &context.actor, ADOPT_BATCH, told).await
}

/// A store of any kind that was opened.
#[derive(Clone)]
pub(crate) enum OpenStore {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

/// Opens a store for a relay.
pub(crate) async fn open(spec: &StoreSpec, absent: Absent, look: FirstLook) -> Result<OpenStore> {
    let create = absent == Absent::Create;
    match spec.url()? {
        StoreUrl::Sqlite(url) => {
            let options = SqliteOptions::from_url(&url)?.create(create).check(look == FirstLook::Thorough);
            SqliteStore::open(options).await.map(OpenStore::Sqlite)
        }
        StoreUrl::Postgres(options) => {
            let options = sourced(options.migrate(create), spec.source);
            PostgresStore::open(options).await.map(OpenStore::Postgres)
        }
    }
}

impl OpenStore {
    /// Lets a crew work on it.
    pub(crate) async fn crew(
        &self,
        orders: Orders,
        words: mpsc::Receiver<Word>,
        post: Post,
    ) -> Result<Summary> {
        match self {
            Self::Sqlite(store) => Box::pin(relay::run_crew(store.clone(), orders, words, post)).await,
            Self::Postgres(store) => Box::pin(relay::run_crew(store.clone(), orders, words, post)).await,
        }
    }

    /// Whether orders could be followed.
    pub(crate) async fn could(&self, orders: &Orders) -> Result<()> {
        match self {
            Self::Sqlite(store) => relay::could(store, orders).await,
            Self::Postgres(store) => relay::could(store, orders).await,
        }
    }

    /// What would become of a subscription.
    pub(crate) async fn outlook(&self, name: &str, settings: &SubscriptionArgs) -> Result<Outlook> {
        match self {
            Self::Sqlite(store) => relay::outlook_of(store, name, settings).await,
            Self::Postgres(store) => relay::outlook_of(store, name, settings).await,
        }
    }

    /// Ends its threads; connections to a server end by themselves.
    pub(crate) async fn close(self) {
        if let Self::Sqlite(store) = self {
            store.close().await;
        }
    }
}

/// Why something cannot be done with a file.
fn only_postgres(action: &Action) -> Option<&'static str> {
    match action {
        Action::Store(StoreCommand::Roles { .. }) => Some(
            "SQLite has no roles: whoever may write the file may do everything. Name a store on PostgreSQL",
        ),
        Action::Store(StoreCommand::Adopt) => {
            Some("a SQLite file that was restored can be used as it is. Name a store on PostgreSQL")
        }
        Action::Store(StoreCommand::Wake { .. }) => {
            Some("SQLite has nobody who could wake a relay: it looks by itself. Name a store on PostgreSQL")
        }
        Action::Store(StoreCommand::Source(_) | StoreCommand::Outbox(_)) => Some(
            "SQLite has no replication slots and makes no events of other tables. Name a store on PostgreSQL",
        ),
        _ => None,
    }
}

fn sourced(options: PostgresOptions, args: SourceArgs) -> PostgresOptions {
    let source = match args.source {
        SourceArg::Poll => Source::Poll,
        SourceArg::Wal => Source::Wal,
    };
    let over = match args.over_budget {
        OverBudgetArg::Alarm => OverBudget::Alarm,
        OverBudgetArg::Leave => OverBudget::Leave,
        OverBudgetArg::Drop => OverBudget::Drop,
    };
    options.source(source).wal_budget(args.wal_budget, over).wal_streaming(args.wal_streaming)
}

/// Only this kind of store has roles, so that they are no part of the contract.
async fn roles(
    options: PostgresOptions,
    prefix: Option<String>,
    sql: bool,
    context: &Context<'_>,
) -> Result<u8> {
    let schema = options.schema_name().to_owned();
    let roles = Roles::new(&schema, prefix.as_deref().unwrap_or(&schema))?;
    if sql {
        return context.output.show(&Script { sql: roles.sql() }).map(|()| exit::OK);
    }
    PostgresStore::open(options).await?.roles_create(&roles).await?;
    let view = |kind: RoleKind| RoleView { name: roles.name(kind), purpose: kind.purpose() };
    let created = RolesView { roles: RoleKind::ALL.map(view).into() };
    context.output.show(&created).map(|()| exit::OK)
}

/// Only this kind of store has a server that could wake a relay. Each try waits for producers for a moment only, so no
/// producer has to wait for long behind it.
async fn wake_set(
    store: &PostgresStore,
    wake: WakeArg,
    two_phase: TwoPhase,
    context: &Context<'_>,
) -> Result<u8> {
    const TRIES: u32 = 30;
    const TRY_EVERY: Duration = Duration::from_secs(1);
    let wake = match wake {
        WakeArg::Poll => Wake::Poll,
        WakeArg::Notify => Wake::Notify,
    };
    let mut tries = 1;
    while let Err(error) = store.wake_set(wake, two_phase, &context.actor).await {
        if error.kind() == ErrorKind::Invalid {
            return Err(Error::invalid(format!("{error}, with --no-two-phase")));
        }
        if !error.is_retryable() || tries == TRIES {
            return Err(error);
        }
        tries += 1;
        tokio::time::sleep(TRY_EVERY).await;
    }
    context.output.show(&WakeView { wake }).map(|()| exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_apart_by_their_scheme() {
        let file = StoreUrl::parse("sqlite://postrider.db").unwrap();
        assert!(matches!(&file, StoreUrl::Sqlite(url) if url == "sqlite://postrider.db"));
        let server = StoreUrl::parse("postgres://u:secret@h/db").unwrap();
        assert!(matches!(server, StoreUrl::Postgres(_)));
        assert_eq!(server.to_string(), "postgres://h/db");
    }

    #[test]
    fn bad_urls_are_refused_without_repeating_secrets() {
        for bad in [
            "",
            "user:secret@host",
            "mysql://user:secret@host/db",
            "secret@host",
            "host=db password=secret",
            "host=db password=a:secret://x",
            "secret",
            "postgres:secret",
        ] {
            let message = StoreUrl::parse(bad).err().expect("refused").to_string();
            assert!(message.contains("sqlite://") && !message.contains("secret"), "{message}");
        }
        for bad in
            ["postgres://u:p@secret@h/db?x=1", "postgres://u:p?secret@h/db", "postgres://u:p/secret@h/db"]
        {
            let message = StoreUrl::parse(bad).err().expect("refused").to_string();
            assert!(!message.contains("secret"), "{message}");
        }
        let message = StoreUrl::parse("postrider.db").err().expect("refused").to_string();
        assert!(message.contains("sqlite://postrider.db"), "{message}");
        let shown = StoreUrl::parse("postgres://u:p@secret@h/db").unwrap();
        assert_eq!(
            (shown.to_string(), shown.option()),
            ("postgres://h/db".into(), " --store $POSTRIDER_STORE".into())
        );
    }

    #[test]
    fn a_url_may_be_written_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("url");
        std::fs::write(&path, "postgres://u:secret@h/db\n").unwrap();
        let read = StoreUrl::typed(&format!("file:{}", path.display())).unwrap();
        assert_eq!(read.to_string(), "postgres://h/db");
        let missing = StoreUrl::typed("env:POSTRIDER_TEST_NOT_SET").err().expect("refused").to_string();
        assert!(missing.contains("`POSTRIDER_TEST_NOT_SET` is not set"), "{missing}");
    }

    #[test]
    fn suggested_commands_name_the_store_only_if_they_must() {
        let option = |url: &str| StoreUrl::parse(url).unwrap().option();
        assert_eq!(option(STORE_DEFAULT), "");
        assert_eq!(option("sqlite:///tmp/a.db"), " --store sqlite:///tmp/a.db");
        assert_eq!(option("sqlite:///tmp/my db's"), r" --store 'sqlite:///tmp/my db'\''s'");
    }
}
