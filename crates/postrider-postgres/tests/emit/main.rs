//! Emitting on real servers, every way and on every release.
//!
//! | file | promise |
//! |---|---|
//! | `atomic` | an event exists if and only if its transaction committed |
//! | `order` | a transaction's number is fetched before its first id; ids come in the order of the events |
//! | `idempotency` | a repeated emit is harmless, whichever producer repeats it and whenever |
//! | `unique` | a key is taken for a period, and given up to an emit that replaces |
//! | `fidelity` | what is emitted is what is stored |
//! | `sql` | whatever types a client gives its parameters, an event is what they say; limits hold for plain SQL |
//! | `libraries` | the same holds with every client library |
//! | `rights` | a producer can emit and nothing else, and calls nothing that others have planted |
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod atomic;
mod fidelity;
mod idempotency;
mod libraries;
mod order;
mod rights;
mod sql;
mod support;
mod unique;
