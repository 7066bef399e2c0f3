//! The binary `postrider`.
//!
//! | file | question it answers |
//! |---|---|
//! | `args` | what can be typed? |
//! | `commands`, one file per noun | what does it do? |
//! | `store_url` | on which store? |
//! | `output`, `text`, `payload`, `why` | what is shown, and in which words? |
//! | `exit`, `usage` | how does it end? |
//! | `jsonl`, `confirm`, `progress`, `signal`, `log` | what else passes between it and its user? |
//!
//! It works through the store's traits and contains no SQL.

mod args;
mod commands;
mod confirm;
mod exit;
mod jsonl;
mod log;
mod output;
mod payload;
mod progress;
mod shard_map;
mod signal;
mod store_url;
mod text;
mod usage;
mod why;

use std::process::ExitCode;

use postrider_core::{Error, ErrorKind, Result};

use crate::args::{Args, Command, GlobalArgs};
use crate::commands::{Action, Context};
use crate::output::Output;
use crate::store_url::StoreUrl;

/// Events are made on the store's thread and freed on the worker's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Args { global, command } = match usage::parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let output = Output::new(&global);
    let runs_long = matches!(command, Command::Up | Command::Relay(_));
    log::init(&global, runs_long, output.stderr_color());
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
    match &command {
        Command::Completions { shell } => return commands::completions::run(*shell).map(|()| exit::OK),
        Command::Bench(args) => {
            return commands::bench::run(args, &global.store, output).map(|()| exit::OK);
        }
        _ => {}
    }
    let store_url = StoreUrl::parse(&global.store)?;
    let action = Action::new(command)?;
    let context = Context { output, store_url, actor: commands::actor() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot start the async runtime").with_source(error)
    })?;
    let done = runtime.block_on(store_url::dispatch(action, &context));
    // A write to a pipe that nobody empties may hang in a thread; the process must end all the same.
    runtime.shutdown_background();
    done
}
