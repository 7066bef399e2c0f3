//! placeholder until the administration half is merged
use crate::session::Tx;
use postrider_core::{Result, Subscription};
pub(crate) async fn subscription_get(_tx: &Tx<'_>, _name: &str) -> Result<Subscription> {
    unimplemented!()
}
