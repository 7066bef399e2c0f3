//! Real brokers start, answer, crash, keep their data and leave nothing behind.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use postrider_testkit::brokers::Credentials;
use postrider_testkit::brokers::kafka::{self, Kafka};
use postrider_testkit::brokers::nats::{self, Nats};
use postrider_testkit::brokers::rabbitmq::{self, RabbitMq};
use postrider_testkit::brokers::redis::{self, AppendOnly, Redis};

/// A connection that is asked and answers, with a bound on every wait.
struct Exchange(TcpStream);

impl Exchange {
    fn with(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Everything up to and with `end`.
    fn receive(&mut self, end: &str) -> String {
        let mut told = Vec::new();
        let mut byte = [0];
        while !String::from_utf8_lossy(&told).contains(end) {
            let length = self.0.read(&mut byte).unwrap();
            assert!(length == 1, "ended before {end:?}: {:?}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        String::from_utf8(told).unwrap()
    }
}

fn redis(server: &Redis, command: &str) -> String {
    let mut exchange = Exchange::with(server.port());
    exchange.send(&format!("{command}\r\n"));
    exchange.receive("\r\n").trim_end().to_owned()
}

/// What NATS answers to a request, which has a head and a body.
fn nats(server: &Nats, subject: &str, head: &str, body: &str) -> String {
    let mut exchange = Exchange::with(server.port());
    exchange.receive("\r\n");
    exchange.send("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answer 1\r\n");
    if head.is_empty() {
        exchange.send(&format!("PUB {subject} answer {}\r\n{body}\r\n", body.len()));
    } else {
        let whole = head.len() + body.len();
        exchange.send(&format!("HPUB {subject} answer {} {whole}\r\n{head}{body}\r\n", head.len()));
    }
    exchange.receive("MSG answer 1 ");
    exchange.receive("\r\n");
    exchange.receive("\r\n")
}

fn is_gone(pid: u32, folder: &Path) {
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    assert!(!folder.exists());
}

#[test]
fn nats_answers_a_ping() {
    let mut exchange = Exchange::with(nats::shared().port());
    assert!(exchange.receive("\r\n").contains("\"headers\":true"));
    exchange.send("CONNECT {\"verbose\":false}\r\nPING\r\n");
    assert_eq!(exchange.receive("\r\n"), "PONG\r\n");
}

#[test]
fn jetstream_knows_duplicates_and_survives_a_kill() {
    let mut server = Nats::start();
    let stream = r#"{"name":"S","subjects":["s.>"],"storage":"file"}"#;
    assert!(nats(&server, "$JS.API.STREAM.CREATE.S", "", stream).contains("\"did_create\":true"));
    let head = "NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n";
    assert!(!nats(&server, "s.a", head, "x").contains("duplicate"));
    let port = server.port();
    server.kill();
    assert_eq!(server.pid(), None);
    server.start_again();
    assert_eq!(server.port(), port);
    assert!(nats(&server, "s.a", head, "x").contains("\"duplicate\": true"));
    assert!(nats(&server, "$JS.API.STREAM.INFO.S", "", "").contains("\"messages\":1,"));
}

#[test]
fn nats_refuses_strangers() {
    let credentials = Some(Credentials::new("rider", "secret"));
    let server = Nats::start_with(&nats::Settings { credentials, ..Default::default() });
    assert_eq!(server.url(), format!("nats://rider:secret@127.0.0.1:{}", server.port()));
    for (password, answer) in [("secret", "PONG"), ("wrong", "-ERR 'Authorization Violation'")] {
        let mut exchange = Exchange::with(server.port());
        exchange.receive("\r\n");
        exchange.send(&format!("CONNECT {{\"user\":\"rider\",\"pass\":\"{password}\"}}\r\nPING\r\n"));
        exchange.receive(answer);
    }
}

#[test]
fn a_frozen_nats_answers_when_it_is_thawed() {
    let mut server = Nats::start();
    server.freeze();
    let mut exchange = Exchange::with(server.port());
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid().unwrap())).unwrap();
    assert!(stat.contains(") T "), "{stat}");
    server.thaw();
    assert!(exchange.receive("\r\n").starts_with("INFO "));
}

#[test]
fn dropped_brokers_leave_nothing() {
    let (mut nats, redis) = (Nats::start(), Redis::start());
    nats.freeze();
    let left = [(nats.pid(), nats.folder()), (redis.pid(), redis.folder())];
    let left = left.map(|(pid, folder)| (pid.unwrap(), folder.to_owned()));
    drop((nats, redis));
    for (pid, folder) in &left {
        is_gone(*pid, folder);
    }
}

#[test]
fn redis_answers_a_ping() {
    assert_eq!(redis(redis::shared(), "PING"), "+PONG");
}

#[test]
fn redis_keeps_what_it_is_told_to_keep() {
    for (append_only, kept) in
        [(AppendOnly::Always, ":1"), (AppendOnly::EverySecond, ":1"), (AppendOnly::Off, ":0")]
    {
        let mut server = Redis::start_with(&redis::Settings { append_only, ..Default::default() });
        redis(&server, "XADD s * a b");
        server.kill();
        server.start_again();
        assert_eq!(redis(&server, "XLEN s"), kept, "{append_only:?}");
    }
}

#[test]
fn redis_refuses_strangers() {
    let password = Some("secret".to_owned());
    let server = Redis::start_with(&redis::Settings { password, ..Default::default() });
    assert!(redis(&server, "XLEN s").starts_with("-NOAUTH"));
    assert!(redis(&server, "AUTH wrong").starts_with("-WRONGPASS"));
    assert_eq!(redis(&server, "AUTH secret"), "+OK");
}

/// Until the partitions of a topic have leaders that are alive by this node's word.
fn wait_for_leaders(kafka: &Kafka, node: usize, topic: &str, leaders: &[i32]) {
    let started = Instant::now();
    loop {
        let told = kafka.metadata(node, topic);
        if told.as_ref().is_ok_and(|told| {
            told.leaders.len() == 3 && told.leaders.iter().all(|(_, leader)| leaders.contains(leader))
        }) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{told:?}\n{}", kafka.log_tail_of(node));
        // tidy: sleep because the election of a leader can only be looked at
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn kafka_keeps_its_topics_through_a_kill_and_leaves_nothing() {
    let mut kafka = Kafka::start();
    assert_eq!(kafka.bootstrap(), format!("127.0.0.1:{}", kafka.port()));
    assert_eq!(kafka.metadata(0, "t").unwrap().topic, Some(3));
    kafka.ask_for_topic("t").unwrap();
    wait_for_leaders(&kafka, 0, "t", &[1]);
    kafka.kill();
    kafka.start_again();
    wait_for_leaders(&kafka, 0, "t", &[1]);
    let (pid, folder) = (kafka.pid_of(0).unwrap(), kafka.folder_of(0).to_owned());
    drop(kafka);
    is_gone(pid, &folder);
}

#[test]
fn another_node_of_kafka_leads_when_one_is_killed() {
    let mut kafka = Kafka::start_cluster();
    kafka.ask_for_topic("t").unwrap();
    wait_for_leaders(&kafka, 1, "t", &[1, 2, 3]);
    kafka.kill_node(0);
    wait_for_leaders(&kafka, 1, "t", &[2, 3]);
    kafka.start_node_again(0);
    assert!(kafka.metadata(0, "t").unwrap().brokers.contains(&1));
}

/// What Kafka answers to a name and a password: the code, 0 or 58.
fn kafka_login(port: u16, password: &str) -> i16 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut code = -1;
    let login = format!("\0rider\0{password}");
    let login = [&(login.len() as u32).to_be_bytes()[..], login.as_bytes()].concat();
    // SaslHandshake and SaslAuthenticate, each with a number that comes back and no name of a client.
    for (api, version, body) in [(17_i16, 1_i16, &b"\0\x05PLAIN"[..]), (36, 0, &login)] {
        let head = [&api.to_be_bytes()[..], &version.to_be_bytes(), &[0, 0, 0, 7, 0xff, 0xff]].concat();
        let length = (head.len() + body.len()) as u32;
        stream.write_all(&[&length.to_be_bytes()[..], &head, body].concat()).unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).unwrap();
        code = i16::from_be_bytes([frame[4], frame[5]]);
    }
    code
}

#[test]
fn kafka_refuses_strangers() {
    let credentials = Some(Credentials::new("rider", "secret"));
    let kafka = Kafka::start_with(&kafka::Settings { credentials, ..Default::default() });
    assert_eq!(kafka_login(kafka.port(), "secret"), 0);
    assert_eq!(kafka_login(kafka.port(), "wrong"), 58);
}

#[test]
fn rabbitmq_knows_its_users_survives_a_kill_and_leaves_nothing() {
    let limited = rabbitmq::User {
        credentials: Credentials::new("rider", "secret"),
        configure: "^$".to_owned(),
        write: "^orders$".to_owned(),
        read: "^$".to_owned(),
    };
    let mut server = RabbitMq::start_with(&rabbitmq::Settings { users: vec![limited], ..Default::default() });
    server.ctl(&["await_startup"]);
    server.ctl(&["authenticate_user", "rider", "secret"]);
    assert!(server.ctl(&["list_permissions"]).contains("rider\t^$\t^orders$\t^$"));
    server.ctl(&["add_vhost", "kept"]);
    server.kill();
    server.start_again();
    assert!(server.ctl(&["list_vhosts"]).lines().any(|line| line == "kept"));
    let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
    drop(server);
    is_gone(pid, &folder);
}

#[test]
fn two_rabbitmqs_run_at_once() {
    let other = RabbitMq::start();
    assert_ne!(rabbitmq::shared().port(), other.port());
    assert_ne!(rabbitmq::shared().url(), other.url());
    for server in [rabbitmq::shared(), &other] {
        server.ctl(&["authenticate_user", "guest", "guest"]);
    }
}
