//! The first words on a connection: who we are, what for, and proof of it.

use std::borrow::Cow;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::frontend;
use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::Config;
use tokio_postgres::config::ChannelBinding;
use tokio_postgres::error::SqlState;

use super::cursor::Cursor;
use super::refusal::{During, ServerSaid, lost, nonsense};
use super::wire::{Frame, Wire};
use crate::options::login_ways::LoginWays;
use crate::server::connect::{PLAIN_ADVICE, way_refused};
use crate::server::settings::PATH_OPTION;

/// What an `AuthenticationRequest` can ask for.
const OK: i32 = 0;
const CLEARTEXT: i32 = 3;
const MD5: i32 = 5;
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Who logs in, and how.
pub(super) struct Login<'a> {
    pub(super) config: &'a Config,
    /// People see the connection under it.
    pub(super) name: &'a str,
    /// The hash of the certificate that the server has shown.
    pub(super) end_point: Option<Vec<u8>>,
    /// Whether others on the way can listen.
    pub(super) is_plain: bool,
    /// By which ways the password may be proved.
    pub(super) ways: LoginWays,
    /// Completes the sentence "cannot …".
    pub(super) what: &'a str,
}

impl Login<'_> {
    /// Asks for a connection in replication mode, proves who we are, and returns when commands are taken.
    pub(super) async fn run(self, wire: &mut Wire) -> Result<()> {
        let user = self.user()?;
        self.start_up(wire, &user)?;
        self.authenticate(wire, &user).await?;
        loop {
            let frame = self.next(wire).await?;
            match frame.tag {
                b'Z' => return Ok(()),
                // Parameters, the key for cancelling, and whatever a later protocol adds.
                b'S' | b'K' | b'v' => {}
                _ => return Err(self.unexpected(frame.tag)),
            }
        }
    }

    fn user(&self) -> Result<Cow<'_, str>> {
        if let Some(user) = self.config.get_user() {
            return Ok(Cow::Borrowed(user));
        }
        let own = whoami::username().map_err(|error| {
            let advice = "name a user in the store's URL";
            Error::invalid(format!("cannot {}: this process has no user's name: {advice}", self.what))
                .with_source(error)
        })?;
        Ok(Cow::Owned(own))
    }

    fn start_up(&self, wire: &mut Wire, user: &str) -> Result<()> {
        let mut parameters = vec![
            ("client_encoding", "UTF8"),
            ("user", user),
            ("application_name", self.name),
            ("replication", "database"),
        ];
        parameters.extend(self.config.get_dbname().map(|name| ("database", name)));
        let options = match self.config.get_options() {
            Some(theirs) => format!("{theirs} {PATH_OPTION}"),
            None => PATH_OPTION.to_owned(),
        };
        parameters.push(("options", &options));
        self.put(frontend::startup_message(parameters, wire.outgoing()))
    }

    async fn authenticate(&self, wire: &mut Wire, user: &str) -> Result<()> {
        let (asked, mut rest) = self.asked(wire).await?;
        self.ways.check(asked).map_err(|refused| way_refused(refused, self.what))?;
        match asked {
            OK => return self.may_go_unbound(),
            CLEARTEXT => {
                self.may_go_unbound()?;
                self.put(frontend::password_message(self.password()?, wire.outgoing()))?;
            }
            MD5 => {
                self.may_go_unbound()?;
                let salt = rest.u32().ok_or_else(|| self.unexpected(b'R'))?;
                let hash = md5_hash(user.as_bytes(), self.password()?, salt.to_be_bytes());
                self.put(frontend::password_message(hash.as_bytes(), wire.outgoing()))?;
            }
            SASL => self.scram(wire, rest).await?,
            _ => {
                let told = "it asks for a way to log in that is not supported: use scram-sha-256";
                return Err(Error::new(ErrorKind::Invalid, format!("cannot {}: {told}", self.what)));
            }
        }
        match self.asked(wire).await? {
            (OK, _) => Ok(()),
            _ => Err(self.unexpected(b'R')),
        }
    }

    async fn scram(&self, wire: &mut Wire, mut mechanisms: Cursor) -> Result<()> {
        let (mut has_plain, mut has_bound) = (false, false);
        while let Some(mechanism) = mechanisms.text() {
            has_plain |= mechanism == sasl::SCRAM_SHA_256;
            has_bound |= mechanism == sasl::SCRAM_SHA_256_PLUS;
        }
        let wanted = self.config.get_channel_binding() != ChannelBinding::Disable;
        let end_point = self.end_point.clone().filter(|_| wanted);
        let (binding, mechanism) = match end_point {
            Some(end_point) if has_bound => {
                (sasl::ChannelBinding::tls_server_end_point(end_point), sasl::SCRAM_SHA_256_PLUS)
            }
            // Told apart, so that the server notices a man in the middle that has removed the other offer.
            Some(_) if has_plain => (sasl::ChannelBinding::unrequested(), sasl::SCRAM_SHA_256),
            None if has_plain || has_bound => (sasl::ChannelBinding::unsupported(), sasl::SCRAM_SHA_256),
            _ => return Err(nonsense(self.what, "no way to prove a password that is known here")),
        };
        if mechanism != sasl::SCRAM_SHA_256_PLUS {
            self.may_go_unbound()?;
        }
        let mut scram = ScramSha256::new(self.password()?, binding);
        self.put(frontend::sasl_initial_response(mechanism, scram.message(), wire.outgoing()))?;
        let challenge = self.asked_for(wire, SASL_CONTINUE).await?;
        self.put(scram.update(challenge.as_slice()))?;
        self.put(frontend::sasl_response(scram.message(), wire.outgoing()))?;
        let proof = self.asked_for(wire, SASL_FINAL).await?;
        // The server proves that it knows the password, too.
        self.put(scram.finish(proof.as_slice()))
    }

    fn password(&self) -> Result<&[u8]> {
        self.config.get_password().ok_or_else(|| {
            let advice = "write it in the store's URL";
            Error::invalid(format!("cannot {}: the server asks for a password: {advice}", self.what))
        })
    }

    fn may_go_unbound(&self) -> Result<()> {
        if self.config.get_channel_binding() != ChannelBinding::Require {
            return Ok(());
        }
        let told = "channel_binding=require, and the server does not bind passwords to the connection";
        Err(Error::invalid(format!("cannot {}: {told}", self.what)))
    }

    /// What the server asks for, and more about it.
    async fn asked(&self, wire: &mut Wire) -> Result<(i32, Cursor)> {
        let frame = self.next(wire).await?;
        let mut rest = Cursor::new(frame.body);
        match (frame.tag, rest.i32()) {
            (b'R', Some(asked)) => Ok((asked, rest)),
            _ => Err(self.unexpected(frame.tag)),
        }
    }

    async fn asked_for(&self, wire: &mut Wire, expected: i32) -> Result<Cursor> {
        match self.asked(wire).await? {
            (asked, rest) if asked == expected => Ok(rest),
            _ => Err(self.unexpected(b'R')),
        }
    }

    /// What the server says next, but for notices; a refusal is an error.
    async fn next(&self, wire: &mut Wire) -> Result<Frame> {
        loop {
            let frame = wire.frame_wait().await.map_err(|error| lost(error, self.what))?;
            match frame.tag {
                b'N' => {}
                b'E' => return Err(self.refused(frame)),
                _ => return Ok(frame),
            }
        }
    }

    fn refused(&self, frame: Frame) -> Error {
        let Some(said) = ServerSaid::read(frame.body) else { return self.unexpected(frame.tag) };
        let said = match said.code {
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION if self.is_plain => said.advised(PLAIN_ADVICE),
            _ => said,
        };
        said.into_error(self.what, During::Login)
    }

    fn unexpected(&self, tag: u8) -> Error {
        nonsense(self.what, &format!("{:?} while logging in", char::from(tag)))
    }

    /// Neither a message that cannot be written nor a proof that fails tells a secret.
    fn put<T>(&self, done: std::io::Result<T>) -> Result<T> {
        done.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot {}: {error}", self.what)).with_source(error)
        })
    }
}
