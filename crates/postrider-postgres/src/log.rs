//! What is there to read, and can it still vanish?

pub(crate) mod fetch;
pub(crate) mod holding;
pub(crate) mod log_rows;
pub(crate) mod probe;
pub(crate) mod straggler;
pub(crate) mod turn;
