//! Whatever bytes a server sends as a change, reading them neither panics nor looks beyond their end, and
//! what was read whole has as many values as it says.
#![no_main]
#![allow(dead_code, reason = "the store uses more of these modules")]

#[path = "../../crates/postrider-postgres/src/replication/cursor.rs"]
mod cursor;
#[path = "../../crates/postrider-postgres/src/replication/pgoutput.rs"]
mod pgoutput;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pgoutput::Change;

fuzz_target!(|bytes: &[u8]| {
    for read in [Change::read, Change::read_in_block] {
        let Some(change) = read(Bytes::copy_from_slice(bytes)) else { continue };
        if let Change::Insert { columns, .. } = &change {
            assert_eq!(columns.iter().count(), columns.len());
        }
        // Half of what is whole is nothing.
        assert_eq!(read(Bytes::copy_from_slice(&bytes[..bytes.len() - 1])), None);
        let _ = format!("{change:?}");
    }
});
