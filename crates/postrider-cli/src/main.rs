//! The binary `postrider`.
//!
//! | file | question it answers |
//! |---|---|
//! | `args` | what can be typed? |
//! | `commands`, one file per noun | what does it do? |
//! | `store_url` | on which store? |
//! | `config` | what does the file of a relay say? |
//! | `output`, `text`, `payload`, `why` | what is shown, and in which words? |
//! | `exit`, `usage`, `secrets` | how does it end, and what is never said of it? |
//! | `jsonl`, `confirm`, `progress`, `signal`, `log` | what else passes between it and its user? |
//!
//! It works through the store's traits and contains no SQL.

mod args;
mod commands;
mod config;
mod confirm;
mod exit;
mod jsonl;
mod log;
mod output;
mod payload;
mod progress;
mod secrets;
mod shard_map;
mod signal;
mod store_url;
mod text;
mod usage;
mod why;

use std::process::ExitCode;

use postrider_core::{Error, ErrorKind, Result};

use crate::args::{Args, Command, GlobalArgs, LogFormatArg};
use crate::commands::relay::Plan;
use crate::commands::{Action, Context};
use crate::output::Output;
use crate::store_url::{StoreUrl, url_of};

/// Events are made on the store's thread and freed on the worker's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    usage::tell_panics();
    let Args { global, command } = match usage::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let output = Output::new(&global);
    log::set_format(global.log_format.unwrap_or_default());
    match run(command, &global, &output) {
        Ok(code) => code.into(),
        Err(error) if output::is_reader_gone(&error) => exit::OK.into(),
        Err(error) => {
            output.error(&error);
            exit::code_of(error.kind()).into()
        }
    }
}

fn run(command: Command, global: &GlobalArgs, output: &Output) -> Result<u8> {
    let log = |format: Option<LogFormatArg>, runs_long| {
        let format = global.log_format.or(format).unwrap_or_default();
        log::init(global, format, runs_long, output.stderr_color());
    };
    match command {
        Command::Completions { shell } => commands::completions::run(shell).map(|()| exit::OK),
        Command::Bench(args) => {
            log(None, false);
            commands::bench::run(&args, &url_of(global.store_url())?, output).map(|()| exit::OK)
        }
        Command::Up => {
            log(None, true);
            block_on(commands::up::run(&url_of(global.store_url())?, output))
        }
        Command::Relay(args) if args.schema => output::print(&config::schema()).map(|()| exit::OK),
        Command::Relay(args) => {
            let (source, is_check) = (config::Source::typed(&args, global), args.check);
            // A log is written as the config says, so that comes first.
            let plan = match &source {
                Some(source) => source.read().inspect_err(|error| tell_as_asked(error, global))?,
                None => Plan::typed(args, global)?,
            };
            log(plan.log_format, !is_check);
            for warning in &plan.warnings {
                tracing::warn!("{warning}");
            }
            if is_check {
                return block_on(commands::relay::check(&plan, output));
            }
            block_on(commands::relay::run(plan, source, output))
        }
        command => {
            log(None, false);
            let store_url = StoreUrl::typed(global.store_url())?;
            let action = Action::new(command)?;
            let context = Context { output, store_url, actor: commands::actor() };
            block_on(store_url::dispatch(action, &context))
        }
    }
}

/// Has the mistakes of a config told in the form of log that it asks for, unless another one was typed.
fn tell_as_asked(error: &Error, global: &GlobalArgs) {
    let problems =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<config::Problems>());
    if let (None, Some(asked)) = (global.log_format, problems.and_then(|problems| problems.log_format)) {
        log::set_format(asked);
    }
}

fn block_on(work: impl Future<Output = Result<u8>>) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot start the async runtime").with_source(error)
    })?;
    let done = runtime.block_on(work);
    // A write to a pipe that no process empties may hang in a thread; the process must end all the same.
    runtime.shutdown_background();
    done
}
