//! Events in listings, which show the beginning of what is large: a page must not hold a gigabyte.

use std::ops::Deref;

use super::{Event, Headers};
use crate::limits;

/// An event in a listing. Of its payload there are at most [`PREVIEW_BYTES_MAX`](limits::PREVIEW_BYTES_MAX)
/// bytes, and headers that are larger than that are left out; [`Store::event_get`](crate::Store::event_get)
/// reads one event whole. What is wrong with headers that are left out is not known here either. Dereferences
/// to the [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What is shown of it.
    pub event: Event,
    /// How long its payload is.
    pub payload_bytes: u64,
    /// Whether it has headers that are not shown.
    pub headers_cut: bool,
}

impl Listed {
    /// The whole event.
    pub fn whole(event: Event) -> Self {
        Self { payload_bytes: event.payload.len() as u64, headers_cut: false, event }
    }

    /// What a listing shows of an event.
    pub fn preview(mut event: Event) -> Self {
        let payload_bytes = event.payload.len() as u64;
        if event.payload.len() > limits::PREVIEW_BYTES_MAX {
            // Copied: a slice would keep all of it in memory.
            event.payload = bytes::Bytes::copy_from_slice(&event.payload[..limits::PREVIEW_BYTES_MAX]);
        }
        let headers_cut = event.headers.bytes() > limits::PREVIEW_BYTES_MAX;
        if headers_cut {
            event.headers = Headers::default();
        }
        Self { event, payload_bytes, headers_cut }
    }

    /// Whether the payload goes on behind what is shown.
    pub fn is_payload_cut(&self) -> bool {
        self.payload_bytes > self.event.payload.len() as u64
    }
}

impl Deref for Listed {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}
