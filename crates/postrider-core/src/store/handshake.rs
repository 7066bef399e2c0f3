//! Whether a program and a schema of different versions work together.
//!
//! A schema says two numbers: its own version, and the *oldest version* of programs that can still work with
//! it. Changes come in two steps. The first only *expands*: it adds tables and columns that older programs
//! need not know, and the oldest version stays. The second, in a later release, *contracts*: it removes what
//! no program uses any more, and the oldest version rises. So programs of two releases run side by side while
//! they are replaced one by one, in either order:
//!
//! | schema | program |
//! |---|---|
//! | older | migrates it, or refuses if it may not |
//! | the same | works |
//! | newer, expanded | works |
//! | newer, contracted | refuses |

use crate::error::{Error, ErrorKind, Result};

/// What a store found in its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Nothing, or a schema of this older version.
    Older(u32),
    /// A schema to work with.
    Works,
}

/// Compares the version that a program knows with what a database says of its schema: its version, and the
/// oldest version of programs that can work with it. `place` is where it was found.
pub fn fit(place: &str, found: Option<(&str, &str)>, known: u32) -> Result<Fit> {
    let Some((version, oldest)) = found else { return Ok(Fit::Older(0)) };
    match (version.parse::<u32>(), oldest.parse::<u32>()) {
        (Ok(version), _) if version < known => Ok(Fit::Older(version)),
        (Ok(version), _) if version == known => Ok(Fit::Works),
        (Ok(_), Ok(oldest)) if oldest <= known => Ok(Fit::Works),
        _ => Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "{place} has schema version {version}, this version of Postrider knows {known}: use a newer Postrider; \
                 nothing was changed"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_two_releases_work_side_by_side() {
        let met = |version, oldest| fit("here", Some((version, oldest)), 4);
        assert_eq!(fit("here", None, 4).unwrap(), Fit::Older(0));
        assert_eq!(met("3", "1").unwrap(), Fit::Older(3));
        assert_eq!(met("4", "4").unwrap(), Fit::Works);
        assert_eq!(met("5", "4").unwrap(), Fit::Works, "it was only expanded");
        for (version, oldest) in [("5", "5"), ("6", "5"), ("x", "1"), ("5", "x"), ("-1", "1")] {
            let error = met(version, oldest).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible, "{version} {oldest}");
            assert!(error.to_string().starts_with(&format!("here has schema version {version}")), "{error}");
        }
    }
}
