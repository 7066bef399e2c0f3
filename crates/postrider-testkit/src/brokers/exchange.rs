//! A few bytes to a server and its answer, with a bound on every wait.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// One who holds a connection open and does not answer is asked again.
const WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What comes first after `request`, as text.
pub(super) fn ask(port: u16, request: &[u8]) -> Result<String, String> {
    let told = || -> io::Result<String> {
        let mut stream = connect(port)?;
        stream.write_all(request)?;
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    told().map_err(|error| error.to_string())
}
