//! The network fails exactly as it is told to.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use postrider_testkit::postgres::{Version, shared};
use postrider_testkit::tcp_proxy::{Counting, Passed, Proxy, Side};

/// Longer than anything takes on a busy machine; a test that works never waits that long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nothing must come before we believe that nothing comes.
const SILENCE: Duration = Duration::from_millis(100);

type Answer = fn(&TcpStream, &[u8]);

/// What a server got on each connection, and how that ended.
type Seen = Receiver<(Vec<u8>, Option<ErrorKind>)>;

/// Sends every byte back.
fn echo() -> (SocketAddr, Seen) {
    server(|mut stream, bytes| _ = stream.write_all(bytes))
}

fn server(answer: Answer) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    let address = listener.local_addr().expect("it is bound");
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || sender.send(drain(stream, answer)));
        }
    });
    (address, receiver)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("sockets have time-outs");
    stream
}

/// Reads to the end; `None` is a clean one.
fn drain(mut stream: TcpStream, each: Answer) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (all, None),
            Ok(bytes) => {
                each(&stream, &buffer[..bytes]);
                all.extend_from_slice(&buffer[..bytes]);
            }
            Err(error) => return (all, Some(error.kind())),
        }
    }
}

fn silent(stream: &TcpStream) {
    let patience = |wait| stream.set_read_timeout(Some(wait)).expect("sockets have time-outs");
    patience(SILENCE);
    let error = (&*stream).read(&mut [0]).expect_err("nothing was to come");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    patience(PATIENCE);
}

fn round_trip(mut stream: &TcpStream, text: &[u8]) {
    stream.write_all(text).expect("the connection stands");
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).expect("the echo answers");
    assert_eq!(back, text);
}

#[test]
fn everything_is_forwarded_and_ends_cleanly() {
    let (target, seen) = echo();
    let proxy = Proxy::start(target);
    let stream = connect(proxy.address());
    let text = vec![7; 300_000];
    thread::spawn({
        let (mut stream, text) = (stream.try_clone().unwrap(), text.clone());
        move || {
            stream.write_all(&text).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
    });
    assert_eq!(drain(stream, |_, _| ()), (text.clone(), None));
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), (text, None));
    assert_eq!(proxy.passed(), Passed { client: 300_000, server: 300_000 });
}

#[test]
fn a_cut_comes_at_the_exact_byte_from_the_server() {
    let (target, _seen) = echo();
    let proxy = Proxy::start(target);
    for bytes in 0..40 {
        let stream = connect(proxy.address());
        round_trip(&stream, b"before");
        proxy.cut_after(Side::Server, bytes, Counting::FromNow);
        (&stream).write_all(&[1; 40]).unwrap();
        let (got, end) = drain(stream, |_, _| ());
        assert_eq!((got.len() as u64, end), (bytes, Some(ErrorKind::ConnectionReset)));
    }
    // The fault struck once.
    round_trip(&connect(proxy.address()), b"after");
}

#[test]
fn a_cut_comes_at_the_exact_byte_from_the_client() {
    // Silent, because a failed answer would be told of the reset, and reading then of a clean end.
    let (target, seen) = server(|_, _| ());
    let proxy = Proxy::start(target);
    for bytes in 0..40 {
        let stream = connect(proxy.address());
        proxy.cut_after(Side::Client, bytes, Counting::EachConnection);
        (&stream).write_all(&[1; 40]).unwrap();
        let (_, end) = drain(stream, |_, _| ());
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
        let (got, end) = seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!((got.len() as u64, end), (bytes, Some(ErrorKind::ConnectionReset)));
    }
    proxy.heal();
    let stream = connect(proxy.address());
    (&stream).write_all(&[1; 40]).unwrap();
    drop(stream);
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), (vec![1; 40], None));
}

#[test]
fn a_black_hole_holds_everything_until_it_is_healed() {
    let (target, _seen) = echo();
    let proxy = Proxy::start(target);
    let old = connect(proxy.address());
    round_trip(&old, b"before");
    proxy.black_hole();
    let new = connect(proxy.address());
    for stream in [&old, &new] {
        (&*stream).write_all(b"x").unwrap();
    }
    silent(&old);
    silent(&new);
    proxy.heal();
    for mut stream in [&old, &new] {
        stream.read_exact(&mut [0]).expect("what was held comes");
    }
    proxy.black_hole();
    proxy.reset_all();
    for stream in [old, new] {
        assert_eq!(drain(stream, |_, _| ()).1, Some(ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_new_target_is_for_new_connections() {
    let (first, _seen) = echo();
    let (second, seen) = echo();
    let proxy = Proxy::start(first);
    let old = connect(proxy.address());
    round_trip(&old, b"old");
    proxy.set_target(second);
    round_trip(&old, b"still old");
    let new = connect(proxy.address());
    round_trip(&new, b"new");
    drop(new);
    assert_eq!(seen.recv_timeout(PATIENCE).unwrap().0, b"new");
    drop(proxy);
    assert_eq!(drain(old, |_, _| ()).1, Some(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_swallowed_answer_was_given() {
    let server = shared(Version::V15);
    let database = server.create_database();
    database.query("create table t (a int)");
    let proxy = Proxy::start(database.address());
    let behind = database.through(proxy.address());
    proxy.count_from_now();
    behind.query("select 1");
    let passed = proxy.passed();
    assert!(passed.client > 0 && passed.server > 0);

    // What the server says before the first statement: as much as before, without the answer.
    proxy.count_from_now();
    assert!(behind.try_query("").is_ok());
    let greeting = proxy.passed().server - b"I....Z.....".len() as u64;
    proxy.swallow_server_bytes_from(greeting);
    assert!(behind.try_query("insert into t values (1)").is_err());
    proxy.wait_for_cut().await;
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(database.query("select count(*) from t"), [[Some("1".to_owned())]]);
    behind.query("insert into t values (2)");
}
