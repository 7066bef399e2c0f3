//! What the commands mean. One file per noun; each works through the store's traits only.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod dead_letter;
pub(crate) mod emit;
pub(crate) mod event;
pub(crate) mod relay;
pub(crate) mod schedule;
pub(crate) mod source;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod subscription;
pub(crate) mod up;

use postrider_core::{QueueStore, Result};

use crate::args::{Command, DeadLetterCommand, EventCommand, StoreCommand, SubscriptionCommand};
use crate::output::Output;
use crate::store_url::StoreUrl;
use crate::{exit, text};

/// What every command needs beside the store.
pub(crate) struct Context<'a> {
    /// Where results and remarks go.
    pub(crate) output: &'a Output,
    /// The store as it was named.
    pub(crate) store_url: StoreUrl,
    /// Who does this, for the audit.
    pub(crate) actor: String,
}

/// A command whose input has been read and checked as far as that is possible without a store, so that
/// bad input leaves no trace, not even an empty database.
pub(crate) enum Action {
    Emit(emit::Emission),
    Subscription(SubscriptionCommand),
    Schedule(schedule::Plan),
    Event(EventCommand),
    DeadLetter(DeadLetterCommand),
    Stats,
    Store(StoreCommand),
}

/// Whether a store that is not there is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    Create,
    Refuse,
}

/// How closely a store is looked at before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstLook {
    Thorough,
    Brief,
}

impl Action {
    /// Reads and checks a command's input.
    pub(crate) fn new(command: Command) -> Result<Self> {
        Ok(match command {
            Command::Emit(args) => Self::Emit(emit::Emission::new(args)?),
            Command::Subscription(command) => {
                if let SubscriptionCommand::Create { name, settings } = &command {
                    subscription::new_subscription(name, settings).check()?;
                }
                Self::Subscription(command)
            }
            Command::Schedule(command) => Self::Schedule(schedule::Plan::new(command)?),
            Command::Event(command) => Self::Event(command),
            Command::DeadLetter(command) => Self::DeadLetter(command),
            Command::Stats => Self::Stats,
            Command::Store(command) => Self::Store(command),
            Command::Up | Command::Relay(_) | Command::Bench(_) | Command::Completions { .. } => {
                unreachable!("what needs no store, or opens its own, has been done before")
            }
        })
    }

    /// What writes may create its store; for the rest, a missing one is most likely a misspelt path.
    pub(crate) fn absent_store(&self) -> Absent {
        match self {
            Self::Emit(_)
            | Self::Subscription(SubscriptionCommand::Create { .. })
            | Self::Schedule(schedule::Plan::Put(_))
            | Self::Store(StoreCommand::Migrate { .. }) => Absent::Create,
            _ => Absent::Refuse,
        }
    }

    /// What runs for long looks for damage first. A short command must not read a large store through,
    /// and `store check` is to report damage, not to stumble over it.
    pub(crate) fn first_look(&self) -> FirstLook {
        match self {
            Self::Store(StoreCommand::Migrate { .. }) => FirstLook::Thorough,
            _ => FirstLook::Brief,
        }
    }
}

/// Runs a command on an open store and returns the exit code.
pub(crate) async fn run<S: QueueStore>(store: &S, action: Action, context: &Context<'_>) -> Result<u8> {
    let done = match action {
        Action::Store(command) => return store::run(store, command, context).await,
        Action::Emit(emission) => emit::run(store, emission, context).await,
        Action::Subscription(command) => subscription::run(store, command, context).await,
        Action::Schedule(plan) => schedule::run(store, plan, context).await,
        Action::Event(command) => event::run(store, command, context).await,
        Action::DeadLetter(command) => dead_letter::run(store, command, context).await,
        Action::Stats => stats::run(store, context).await,
    };
    done.map(|()| exit::OK)
}

/// The user that the audit names, by the word of the environment. Without one it is empty: a server then
/// names the role.
pub(crate) fn actor() -> String {
    let user =
        ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    user.map_or_else(String::new, |user| format!("{} (cli)", text::escape(&text::shorten(&user, 100))))
}
