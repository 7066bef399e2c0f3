//! `postrider relay`.

use postrider_core::{LogStore, Result};

use super::{Context, subscription};
use crate::args::{RelayArgs, SubscriptionArgs};

/// What a relay is to do, read and checked.
pub(crate) struct Plan {
    subscription: String,
    settings: SubscriptionArgs,
}

impl Plan {
    pub(crate) fn new(args: RelayArgs) -> Result<Self> {
        subscription::new_subscription(&args.subscription, &args.settings).check()?;
        Ok(Self { subscription: args.subscription, settings: args.settings })
    }

    pub(crate) fn to_stdout(name: &str) -> Result<Self> {
        Ok(Self { subscription: name.to_owned(), settings: SubscriptionArgs::default() })
    }
}

pub(crate) async fn run<S: LogStore>(store: &S, plan: Plan, context: &Context<'_>) -> Result<u8> {
    subscription::ensure(store, &plan.subscription, &plan.settings).await?;
    Ok(0)
}
