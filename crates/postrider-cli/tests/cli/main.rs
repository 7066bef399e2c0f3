//! The real binary, run as a user runs it, on a store of its own for each test.
//!
//! | file | question it answers |
//! |---|---|
//! | `emit` | does what was typed, piped or listed become events? |
//! | `inspect` | are events, subscriptions and the store shown as they are? |
//! | `dead_letter` | can what failed for good be repaired, replayed, given up? |
//! | `relay` | is it delivered, and does it end as it should? |
//! | `config` | is a config file understood, checked and refused as it should be? |
//! | `reload` | is a config taken over while events flow, or refused as a whole? |
//! | `service` | what do others know of the process: systemd, a pid file, a health file? |
//! | `secrets` | is a password ever shown? |
//! | `roles` | can each role do with the binary what it is for? |
//! | `schedule` | are events emitted at their times, each once? |
//! | `source` | are slots removed, and outbox tables attached? |
//! | `languages` | do events arrive that programs in other languages emit? |
//! | `producers` | does natural JSON of every client library arrive unchanged? |
//! | `sinks` | does one sick sink among six delay only itself? |
//! | `links` | is anything lost when the network or a process fails between store and broker? |
//! | `hostile` | does anything stop at rows that no emit would write? |
//! | `http_receiver` | who receives webhooks, and answers as told? |
//! | `receivers` | where are the brokers, and what do they hold? |
//! | `store` | is a store made, checked, pruned, and damage told? |
//! | `bad_input` | does every mistake end in a sentence, its code, and an untouched store? |
//! | `kill` | is anything lost when processes are killed at any moment? |
//! | `disk` | is anything handed out that is not on disk? |

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod config;
mod dead_letter;
mod disk;
mod emit;
mod harness;
mod hostile;
#[path = "../../../postrider-sinks/tests/parts/http_receiver.rs"]
#[allow(dead_code, reason = "not every test asks all of it")]
mod http_receiver;
mod inspect;
mod kill;
mod languages;
mod links;
mod producers;
mod receivers;
mod relay;
mod reload;
mod roles;
mod schedule;
mod secrets;
mod service;
mod sinks;
mod source;
mod store;
mod wake;
