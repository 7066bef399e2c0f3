//! Who may do what with a store.
//!
//! Four roles without a login; a user that works with the store is made a member of one (`grant shop_relay to ada`).
//! What each may do is in `sql/scripts/grants_*.sql`, and `tests/postgres/roles.txt` lists it as the server sees it.

use postrider_core::{Error, Result};

use crate::log::turn::LEAVES;
use crate::server::statement::Schema;

/// PostgreSQL cuts a name off behind so many bytes, and the rest could be the name of another role.
const NAME_BYTES_MAX: usize = 63;
const CREATE: &str = include_str!("../../sql/scripts/role_create.sql");

/// What a role is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RoleKind {
    /// Emits.
    Producer,
    /// Delivers, settles, and removes old events.
    Relay,
    /// Does what people do with subscriptions and dead letters.
    Operator,
    /// Looks, but not at payloads and headers.
    Reader,
}

impl RoleKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Producer, Self::Relay, Self::Operator, Self::Reader];

    /// The last part of the role's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Relay => "relay",
            Self::Operator => "operator",
            Self::Reader => "reader",
        }
    }

    /// What it is for, in a few words.
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Producer => "emits, and nothing else",
            Self::Relay => "delivers, settles, fires schedules, removes old events",
            Self::Operator => "manages subscriptions, schedules and dead letters",
            Self::Reader => "looks at everything but payloads and headers",
        }
    }

    fn grants(self) -> &'static str {
        match self {
            Self::Producer => include_str!("../../sql/scripts/grants_producer.sql"),
            Self::Relay => include_str!("../../sql/scripts/grants_relay.sql"),
            Self::Operator => include_str!("../../sql/scripts/grants_operator.sql"),
            Self::Reader => include_str!("../../sql/scripts/grants_reader.sql"),
        }
    }
}

/// The four roles of a store, by names that begin alike.
///
/// ```
/// use postrider_postgres::{RoleKind, Roles};
/// let roles = Roles::new("postrider", "shop")?;
/// assert_eq!(roles.name(RoleKind::Relay), "shop_relay");
/// assert!(roles.sql().contains(r#"create role "shop_relay" nologin;"#));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    schema: Schema,
    prefix: String,
}

impl Roles {
    /// For the store in `schema`. Roles belong to the whole server: stores that are to have roles of their own need
    /// prefixes of their own.
    pub fn new(schema: &str, prefix: &str) -> Result<Self> {
        let roles = Self { schema: Schema::new(schema)?, prefix: prefix.to_owned() };
        // An empty prefix would give names that many others may have had the idea for.
        if prefix.is_empty() {
            return Err(Error::invalid("the prefix of the roles is empty: give a word, such as `postrider`"));
        }
        RoleKind::ALL.iter().try_for_each(|kind| Quoted::new(&roles.name(*kind)).map(drop))?;
        Ok(roles)
    }

    /// What a role is called.
    pub fn name(&self, kind: RoleKind) -> String {
        format!("{}_{}", self.prefix, kind.word())
    }

    /// The script that creates those that are absent and lets each do what it is for, and nothing else with this store.
    /// To be run as the schema's owner, who may create roles, or after another role has created them.
    pub fn sql(&self) -> String {
        format!("begin;\n{}\ncommit;\n", self.statements())
    }

    /// The same within a transaction of the caller's.
    pub(crate) fn statements(&self) -> String {
        let mut script = String::new();
        for kind in RoleKind::ALL {
            let name = Quoted::new(&self.name(kind)).expect("the names were checked when the prefix was");
            script.push('\n');
            script.push_str(&fit(CREATE, &self.schema, &name));
            script.push('\n');
            script.push_str(&fit(kind.grants(), &self.schema, &name));
        }
        script
    }
}

/// The statements that let `role` emit to the store in `schema`, and nothing else: by plain insert, by `COPY`, and
/// by the function `emit`. Run them as the schema's owner. For those who have roles of their own; [`Roles`] makes some.
///
/// ```
/// let sql = postrider_postgres::producer_grants("postrider", "shop")?;
/// assert!(sql.contains(r#"grant usage on schema "postrider" to "shop";"#));
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn producer_grants(schema: &str, role: &str) -> Result<String> {
    Ok(fit(RoleKind::Producer.grants(), &Schema::new(schema)?, &Quoted::new(role)?))
}

/// A role's name as an identifier and as a text.
struct Quoted {
    identifier: String,
    text: String,
}

impl Quoted {
    /// Refuses names that mean every role or none.
    fn new(role: &str) -> Result<Self> {
        let is_name = !role.is_empty() && role.len() <= NAME_BYTES_MAX && !role.contains(char::is_control);
        // A `$` could end the block that a name is quoted in, and a backslash means something to old settings.
        if !is_name
            || ["public", "none"].contains(&role)
            || role.starts_with("pg_")
            || role.contains(['$', '\\'])
        {
            return Err(Error::invalid(format!(
                "`{}` cannot name a role: use letters, digits and `_`, at most {NAME_BYTES_MAX} bytes, and nothing \
                 that PostgreSQL has a use for",
                role.escape_default()
            )));
        }
        Ok(Self {
            identifier: format!("\"{}\"", role.replace('"', "\"\"")),
            text: format!("'{}'", role.replace('\'', "''")),
        })
    }
}

/// A script of ours for one schema and one role. The role's name is put in last, so that nothing in it is replaced.
fn fit(script: &str, schema: &Schema, role: &Quoted) -> String {
    let leaves: Vec<String> = (0..LEAVES).map(|leaf| format!("postrider.event_{leaf}")).collect();
    let script = script.replace("event_leaves", &leaves.join(", "));
    let script = schema.fit(&script).replace("schema_name", schema.name());
    script
        .split("role_name")
        .map(|piece| piece.replace("role_text", &role.text))
        .collect::<Vec<_>>()
        .join(&role.identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_what_is_no_role_is_refused() {
        let sql = producer_grants("shop", "a\"; drop table x; --").unwrap();
        assert!(sql.contains("to \"a\"\"; drop table x; --\";"), "{sql}");
        let long = "x".repeat(64);
        for bad in ["", "public", "none", "pg_monitor", "a\0b", "a\nb", "a$$b", "a\\b", &long] {
            assert!(producer_grants("shop", bad).is_err(), "{bad:?}");
        }
        assert!(producer_grants("a b", "app").is_err());
    }

    #[test]
    fn the_script_names_schema_and_roles_and_nothing_stays_to_be_replaced() {
        let sql = Roles::new("order", "it's \"mine\" role_name role_text").unwrap().sql();
        assert!(sql.contains(r#"create role "it's ""mine"" role_name role_text_reader" nologin;"#), "{sql}");
        assert!(sql.contains("where rolname = 'it''s \"mine\" role_name role_text_reader'"), "{sql}");
        assert!(sql.contains(r#"grant usage on schema "order" to "#), "{sql}");
        assert!(sql.contains(r#""order".event_15 to "#), "{sql}");
        for left in ["postrider.", "schema_name", "event_leaves"] {
            assert!(!sql.contains(left), "{left}: {sql}");
        }
    }

    #[test]
    fn a_prefix_leaves_room_for_the_whole_name() {
        assert!(Roles::new("postrider", &"x".repeat(54)).is_ok());
        for bad in [&"x".repeat(55), "", "pg", "a\0"] {
            assert!(Roles::new("postrider", bad).is_err(), "{bad:?}");
        }
    }
}
