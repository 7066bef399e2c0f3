//! What a role may do that only emits.

use postrider_core::{Error, Result};

use crate::statement::Schema;

/// A PostgreSQL name is cut off behind so many bytes, which would then be the name of somebody else.
const NAME_BYTES_MAX: usize = 63;

/// The statements that let `role` emit to the store in `schema`, and nothing else: by plain insert, by `COPY`, and
/// by the function `emit`. Run them as the schema's owner.
///
/// The columns `xid` and `id` are left out on purpose. A log is read without loss because each row's `xid` is
/// fetched before its `id` is drawn; whoever could write them could make events invisible. Ids may be read, for
/// `returning id`; nothing else may, not even one's own payloads. Leaves and the sequence need no grant.
///
/// ```
/// let sql = postrider_postgres::producer_grants("postrider", "shop")?;
/// assert!(sql.contains(r#"grant usage on schema "postrider" to "shop";"#));
/// # Ok::<(), postrider_core::Error>(())
/// ```
pub fn producer_grants(schema: &str, role: &str) -> Result<String> {
    let schema = Schema::new(schema)?;
    let role = quoted(role)?;
    let schema = schema.name();
    Ok(format!(
        "grant usage on schema \"{schema}\" to {role};\n\
         grant insert (topic, type, key, payload, headers, due_at), select (id) on \"{schema}\".event to {role};\n\
         grant execute on function \"{schema}\".emit to {role};\n"
    ))
}

/// A role's name in quotes. What would name everybody or nobody is no role.
fn quoted(role: &str) -> Result<String> {
    let is_name = !role.is_empty() && role.len() <= NAME_BYTES_MAX && !role.contains(char::is_control);
    if !is_name || ["public", "none"].contains(&role) || role.starts_with("pg_") {
        return Err(Error::invalid(format!(
            "`{}` cannot name a producer's role: name one role of your application",
            role.escape_default()
        )));
    }
    Ok(format!("\"{}\"", role.replace('"', "\"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_what_is_no_role_is_refused() {
        let sql = producer_grants("shop", "a\"; drop table x; --").unwrap();
        assert!(sql.contains("to \"a\"\"; drop table x; --\";"), "{sql}");
        for bad in ["", "public", "none", "pg_monitor", "a\0b", "a\nb", &"x".repeat(64)] {
            assert!(producer_grants("shop", bad).is_err(), "{bad:?}");
        }
        assert!(producer_grants("a b", "app").is_err());
    }
}
