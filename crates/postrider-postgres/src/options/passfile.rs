//! Passwords where libpq looks for them: `PGPASSWORD`, and the file that `PGPASSFILE` names or `~/.pgpass`.
//!
//! A line of the file is `host:port:database:user:password`. `*` stands for anything, and `\` takes the
//! meaning from a `:` or a `\` behind it. The first line that fits counts. As with libpq, a file that others
//! may read is not used.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tracing::warn;

/// More than any list of passwords has.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The password for a server, if one of these places has it.
pub(crate) fn password_of(config: &Config) -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(password) = variable("PGPASSWORD") {
        return Some(password);
    }
    let path = match variable("PGPASSFILE") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(variable("HOME")?).join(".pgpass"),
    };
    let lines = read(&path)?;
    let user = config.get_user().map(str::to_owned).or_else(|| whoami::username().ok())?;
    servers(config).into_iter().find_map(|(host, port)| {
        let database = config.get_dbname().unwrap_or(&user);
        find(&lines, &[&host, &port.to_string(), database, &user])
    })
}

/// Hosts with their ports. A socket of this machine is called `localhost` there.
fn servers(config: &Config) -> Vec<(String, u16)> {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    };
    let hosts = config.get_hosts().iter().enumerate().map(|(place, name)| (host(name), port(place)));
    hosts.collect()
}

fn read(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.mode() & 0o077 != 0 {
        warn!(path = %path.display(), "a file of passwords is not used, because others may read it: chmod 0600");
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The password of the first line that fits.
fn find(lines: &str, wanted: &[&str; 4]) -> Option<String> {
    lines.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line);
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        (fits && !password.is_empty()).then_some(password)
    })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let field = fields.last_mut().expect("there is one from the start");
        match c {
            ':' => fields.push(String::new()),
            '\\' => field.extend(characters.next()),
            c => field.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let lines = "# db:*:*:*:no\n\
                     db:5432:shop:ann:one\n\
                     db:*:*:ann:t\\:w\\\\o\n\
                     bad line\n\
                     *:*:*:*:last\n";
        let find = |host, port, database, user| find(lines, &[host, port, database, user]);
        assert_eq!(find("db", "5432", "shop", "ann").as_deref(), Some("one"));
        assert_eq!(find("db", "5433", "shop", "ann").as_deref(), Some("t:w\\o"));
        assert_eq!(find("db", "5433", "shop", "bob").as_deref(), Some("last"));
        assert_eq!(super::find("db:1:x:y:z\n", &["db", "2", "x", "y"]), None);
    }

    #[test]
    fn a_file_that_others_may_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pgpass");
        std::fs::write(&path, "*:*:*:*:hunter2\n").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        assert_eq!((with(0o644), with(0o640)), (None, None));
        assert!(with(0o600).is_some());
        assert_eq!(read(dir.path()), None, "a folder is no file");
    }
}
