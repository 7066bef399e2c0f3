//! One connection for all senders, made when first needed.

use std::fmt;
use std::future::Future;

use postrider_core::Failure;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Holds a connection, or how the last try to make one failed.
pub(crate) struct ConnectionSlot<C>(Mutex<Held<C>>);

enum Held<C> {
    Nothing,
    Connection(C),
    Failed(Instant, Failure),
}

impl<C> Default for ConnectionSlot<C> {
    fn default() -> Self {
        Self(Mutex::new(Held::Nothing))
    }
}

impl<C: Clone> ConnectionSlot<C> {
    /// The connection, made again unless it is still good. One task makes it and the others wait. If it
    /// cannot be made, all waiting tasks get that failure, instead of each waiting for a separate time limit.
    ///
    /// Cancel safe: the next waiting task makes the connection.
    pub(crate) async fn get(
        &self,
        is_good: impl FnOnce(&C) -> bool,
        connect: impl Future<Output = Result<C, Failure>>,
    ) -> Result<C, Failure> {
        let asked = Instant::now();
        let mut held = self.0.lock().await;
        match &*held {
            Held::Connection(connection) if is_good(connection) => return Ok(connection.clone()),
            Held::Failed(at, failure) if *at > asked => return Err(failure.clone()),
            _ => *held = Held::Nothing,
        }
        match connect.await {
            Ok(connection) => {
                *held = Held::Connection(connection.clone());
                Ok(connection)
            }
            Err(failure) => {
                *held = Held::Failed(Instant::now(), failure.clone());
                Err(failure)
            }
        }
    }

    /// Lets the next one make a new connection.
    #[cfg(any(feature = "redis", feature = "inbox"))]
    pub(crate) async fn forget(&self) {
        *self.0.lock().await = Held::Nothing;
    }
}

impl<C> fmt::Debug for ConnectionSlot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionSlot")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn one_makes_the_connection_and_all_who_waited_hear_of_a_failure() {
        let slot = ConnectionSlot::default();
        let tries = Cell::new(0);
        let get = |works: bool| {
            let (slot, tries) = (&slot, &tries);
            slot.get(|good: &bool| *good, async move {
                tries.set(tries.get() + 1);
                // The others ask meanwhile, and the clock moves on.
                tokio::task::yield_now().await;
                let begun = Instant::now();
                while Instant::now() == begun {
                    tokio::task::yield_now().await;
                }
                if works { Ok(true) } else { Err(Failure::unavailable("down")) }
            })
        };
        let (one, two, three) = futures_util::join!(get(false), get(false), get(false));
        assert!(one.is_err() && two.is_err() && three.is_err());
        assert_eq!(tries.get(), 1);
        let (one, two) = futures_util::join!(get(true), get(true));
        assert_eq!((one, two, tries.get()), (Ok(true), Ok(true), 2));
        let again = slot.get(|_| false, async { Ok(false) }).await;
        assert_eq!(again, Ok(false), "one that is no longer good is made anew");
    }
}
