//! Real servers to try things out with, and to measure with: PostgreSQL 15, Kafka, NATS, Redis, and a
//! receiver of webhooks.
//!
//! `cargo run -p postrider-testkit --features brokers,postgres --example servers` prints where they are, as
//! arguments for `postrider bench`, and ends them when its standard input ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use postrider_testkit::brokers::kafka::Kafka;
use postrider_testkit::brokers::nats::Nats;
use postrider_testkit::brokers::redis::Redis;
use postrider_testkit::postgres::{Server, Settings, Version};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let postgres = thread::spawn(|| {
        let settings = Settings::honest().set("wal_level", "logical").set("shared_buffers", "512MB");
        Server::start(Version::V15, settings.set("max_wal_size", "4GB"))
    });
    let kafka = thread::spawn(Kafka::start);
    let (nats, redis) = (Nats::start(), Redis::start());
    create_stream(nats.address());
    let (postgres, kafka) = (postgres.join().expect("it starts"), kafka.join().expect("it starts"));
    kafka.ask_for_topic("bench").expect("Kafka makes topics that are asked for");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let webhook = listener.local_addr().expect("it is bound");
    tokio::spawn(take_webhooks(listener));
    println!("--store {}", postgres.url("postgres"));
    println!("--sink kafka://{}/bench", kafka.bootstrap());
    println!("--sink {}/bench?stream=BENCH", nats.url());
    println!("--sink {}/bench?maxlen=100000", redis.url().trim_end_matches('/'));
    println!(r#"--sink {{"http":{{"url":"http://{webhook}/","allow":["127.0.0.1"]}}}}"#);
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("it does not panic").expect("standard input can be read");
}

/// In JetStream's own words, since the client is not for here.
fn create_stream(address: SocketAddr) {
    let config = r#"{"name":"BENCH","subjects":["bench"],"storage":"file","max_msgs":100000,"duplicate_window":1000000000}"#;
    let mut stream = TcpStream::connect(address).expect("NATS listens");
    let asked = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB told 1\r\nPUB $JS.API.STREAM.CREATE.BENCH told {}\r\n{config}\r\n",
        config.len()
    );
    stream.write_all(asked.as_bytes()).expect("NATS reads");
    let mut answer = String::new();
    while !answer.contains("MSG told") {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).expect("NATS answers");
        assert!(count > 0, "NATS hung up: {answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(!answer.contains("\"error\""), "{answer}");
}

/// Answers every request with 204.
async fn take_webhooks(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let (mut line, mut body) = (String::new(), Vec::new());
            let mut length = 0;
            while let Ok(1..) = stream.read_line(&mut line).await {
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().expect("hyper writes a number");
                }
                if line == "\r\n" {
                    body.resize(length, 0);
                    let taken = stream.read_exact(&mut body).await.is_ok();
                    if !taken || stream.write_all(b"HTTP/1.1 204 X\r\n\r\n").await.is_err() {
                        return;
                    }
                    length = 0;
                }
                line.clear();
            }
        });
    }
}
