//! What the PostgreSQL store promises beyond the conformance suite, each promise with a real server.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

/// Runs each of some tests on every version that is tested.
macro_rules! on_each_version {
    ($($name:ident,)*) => {
        mod postgresql_15 {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(postrider_testkit::postgres::Version::V15).await;
                }
            )*
        }

        mod postgresql_18 {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(postrider_testkit::postgres::Version::V18).await;
                }
            )*
        }
    };
}

mod checks;
mod dead_letters;
mod events;
mod lag;
mod places;
mod position_swaps;
mod retention;
mod retention_races;
mod rights;
mod roles;
mod rotation;
mod scene;
mod schema_dump;
mod schemas;
mod seeks;
mod tls;
