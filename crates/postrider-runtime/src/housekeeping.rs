//! What happens beside deliveries: schedules, and old events?

pub(crate) mod maintenance;
pub(crate) mod schedules;
