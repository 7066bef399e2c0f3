//! Where channels come from, and when the connection is opened again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::types::FieldTable;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionProperties, ConnectionStatus, ExchangeKind};
use postrider_core::{Error, ErrorKind, Failure, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, timeout_at};

use super::refusal::{Refusal, is_login};
use super::{RabbitMqOptions, USUAL_LOGIN};
use crate::connect::login::Login;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Seconds after half of which a silent connection is asked whether it lives.
const HEARTBEAT_S: u16 = 10;

/// Channels with confirms that may be used, at most so many at once.
pub(super) struct Channels {
    options: RabbitMqOptions,
    permits: Semaphore,
    /// Held while it is opened, so that it is opened once.
    connection: tokio::sync::Mutex<Option<Connection>>,
    idle: Mutex<Vec<Channel>>,
}

/// A channel for one batch. Unless it is given back it is closed: also when the future that sends the batch is dropped.
pub(super) struct Lease<'a> {
    pub(super) channel: Channel,
    /// Of the connection.
    pub(super) status: ConnectionStatus,
    channels: &'a Channels,
    _permit: SemaphorePermit<'a>,
}

impl Channels {
    /// Reads the password once, so that one that cannot be had is told at once.
    pub(super) fn new(options: &RabbitMqOptions) -> Result<Self> {
        uris(options)?;
        Ok(Self {
            options: options.clone(),
            permits: Semaphore::new(options.channels_max.get() as usize),
            connection: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
        })
    }

    pub(super) fn options(&self) -> &RabbitMqOptions {
        &self.options
    }

    /// An idle channel or a new one, of the connection that there is or of a new one.
    pub(super) async fn take(&self, deadline: Instant) -> Result<Lease<'_>, Failure> {
        let mut heard = "no channel was free".to_owned();
        let taking = async {
            let permit = self.permits.acquire().await.expect("nobody closes the permits");
            let mut connection = self.connection.lock().await;
            let mut pause = PAUSE_MIN;
            loop {
                let error = match self.try_take(&mut connection).await {
                    Ok((channel, status)) => {
                        return Ok(Lease { channel, status, channels: self, _permit: permit });
                    }
                    Err(NotTaken::ForNow(error)) => error,
                    Err(NotTaken::Refused(failure)) => return Err(failure),
                };
                heard = error.to_string();
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        timeout_at(deadline, taking)
            .await
            .unwrap_or_else(|_| Err(Failure::unavailable(format!("RabbitMQ cannot be reached: {heard}"))))
    }

    async fn try_take(
        &self,
        connection: &mut Option<Connection>,
    ) -> Result<(Channel, ConnectionStatus), NotTaken> {
        let open = match connection {
            Some(open) if open.status().connected() => open,
            _ => {
                self.idle().clear();
                *connection = None;
                connection.insert(connect(&self.options).await?)
            }
        };
        if open.status().blocked() {
            return Err(NotTaken::Refused(blocked()));
        }
        let status = open.status().clone();
        let idle = {
            let mut idle = self.idle();
            idle.retain(|channel| channel.status().connected());
            idle.pop()
        };
        if let Some(channel) = idle {
            return Ok((channel, status));
        }
        // Whatever goes wrong here is no refused login, but a connection that was lost meanwhile.
        let for_now = |error| NotTaken::ForNow(Arc::new(error));
        let channel = open.create_channel().await.map_err(for_now)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(for_now)?;
        Ok((channel, status))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        // Nothing panics while it is held.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    /// For the next batch: everything that was published on it was confirmed.
    pub(super) fn give_back(self) {
        self.channels.idle().push(self.channel.clone());
    }
}

/// Why there is no channel.
enum NotTaken {
    /// It may be there in a moment.
    ForNow(Arc<lapin::Error>),
    /// The broker, or the options, will not have it.
    Refused(Failure),
}

/// What a broker that runs out of memory or disk makes of publishers.
pub(super) fn blocked() -> Failure {
    Failure::unavailable("RabbitMQ blocks publishers: it is short of memory or disk")
}

async fn connect(options: &RabbitMqOptions) -> Result<Connection, NotTaken> {
    let uris = uris(options).map_err(|error| NotTaken::Refused(Failure::unavailable(error.to_string())))?;
    let mut last = None;
    for uri in uris {
        let properties = ConnectionProperties::default().with_connection_name("postrider".into());
        match Connection::connect_uri(uri, properties).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    let error = last.expect("there is a broker");
    Err(if is_login(&error) {
        NotTaken::Refused(Failure::unavailable(format!("RabbitMQ refuses the connection: {error}")))
    } else {
        NotTaken::ForNow(Arc::new(error))
    })
}

fn uris(options: &RabbitMqOptions) -> Result<Vec<AMQPUri>> {
    let username = options.user.clone().unwrap_or_else(|| USUAL_LOGIN.to_owned());
    let password = match (&options.user, &options.password) {
        (_, Some(password)) => password.read()?.expose().to_owned(),
        (None, None) => USUAL_LOGIN.to_owned(),
        (Some(_), None) => {
            return Err(Error::invalid("sink `rabbitmq` has a user and no password: give both"));
        }
    };
    Login {
        sink: "rabbitmq",
        servers: &options.brokers,
        is_given: options.user.is_some() || options.password.is_some(),
        tls: options.tls,
        may_be_clear: options.login_in_clear,
    }
    .check()?;
    options
        .brokers
        .iter()
        .map(|broker| {
            let (host, port) = match broker.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => {
                    let port = port.parse().map_err(|_| {
                        Error::invalid(format!(
                            "the port of broker `{broker}` is not a number from 0 to 65535"
                        ))
                    })?;
                    (host, port)
                }
                _ => (broker.as_str(), options.usual_port()),
            };
            Ok(AMQPUri {
                scheme: if options.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
                authority: AMQPAuthority {
                    userinfo: AMQPUserInfo { username: username.clone(), password: password.clone() },
                    host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                    port,
                },
                vhost: options.vhost.clone(),
                query: AMQPQueryString { heartbeat: Some(HEARTBEAT_S), ..AMQPQueryString::default() },
            })
        })
        .collect()
}

/// Looks whether a broker lets us in and has the exchange, and makes nothing.
pub(super) async fn check(options: &RabbitMqOptions) -> Result<Vec<String>> {
    let bound = CHECK_MAX.min(Duration::from_millis(options.timeout_ms.get().into()));
    let unreachable = |reason: &dyn fmt::Display| {
        Error::new(ErrorKind::Unavailable, format!("RabbitMQ cannot be reached: {reason}"))
    };
    let looking = async {
        let connection = match connect(options).await {
            Ok(connection) => connection,
            Err(NotTaken::ForNow(error)) => return Err(unreachable(&error)),
            Err(NotTaken::Refused(failure)) => return Err(Error::invalid(failure.message())),
        };
        let channel = connection.create_channel().await.map_err(|error| unreachable(&error))?;
        let found = vec![format!("reaches RabbitMQ, virtual host `{}`", options.vhost)];
        let Some(exchange) = options.exchange.as_constant() else {
            return Ok(
                [found, vec![format!("the exchange depends on the event: `{}`", options.exchange)]].concat()
            );
        };
        if exchange.is_empty() {
            return Ok([found, vec!["publishes to the queue that the routing key names".to_owned()]].concat());
        }
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let asked =
            channel.exchange_declare(exchange.into(), ExchangeKind::Topic, passive, FieldTable::default());
        match asked.await {
            Ok(()) => Ok([found, vec![format!("publishes to the exchange `{exchange}`")]].concat()),
            Err(error) if Refusal::of(&error) == Refusal::Connection => Err(unreachable(&error)),
            Err(error) => Err(Error::invalid(format!(
                "exchange `{exchange}` of RabbitMQ: {error}. The sink makes no exchange: declare it and bind a queue"
            ))),
        }
    };
    tokio::time::timeout(bound, looking).await.unwrap_or_else(|_| Err(unreachable(&"it does not answer")))
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("options", &self.options).finish_non_exhaustive()
    }
}
