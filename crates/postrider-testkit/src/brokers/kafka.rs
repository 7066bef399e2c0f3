//! Kafka in KRaft mode: one node, or three that can be killed one by one.
//!
//! A virtual machine a node takes seconds to start: use [`shared`] wherever nothing is killed. Topics come into
//! being when they are first asked for, with three partitions and a replica on every node.
//!
//! | file | question it answers |
//! |---|---|
//! | `node` | how is one node set up, formatted and started? |
//! | `wire` | who is in the cluster, and which topics are there? |

mod node;
mod wire;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

pub use self::wire::Metadata;

use self::node::{Node, Ports};
use super::{Credentials, on_free_ports};

const NODES_MAX: usize = 3;

/// How it is set up.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Three nodes instead of one; of a topic's three replicas two must have what is acknowledged with `acks=all`.
    pub three_nodes: bool,
    /// Who may connect, by SASL/PLAIN, or with TLS by SCRAM; everybody if there is none.
    pub credentials: Option<Credentials>,
    /// Where clients are told to find a single node, such as a proxy before it; where it listens if there is none.
    pub advertised: Option<SocketAddr>,
    /// What clients are shown, and they then have to encrypt; plain connections if there is none.
    pub tls: Option<Tls>,
    /// More lines of `server.properties`, such as `message.max.bytes=1000`.
    pub lines: Vec<String>,
}

/// Certificates of brokers, all in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate for `127.0.0.1`.
    pub certificate: String,
    /// Its key, in PKCS #8.
    pub key: String,
    /// The authority that must have signed clients' certificates. With one, every client has to show its
    /// certificate; without one, the brokers ask for none.
    pub clients: Option<String>,
}

/// Running Kafka; its nodes and their data are gone when this is dropped.
#[derive(Debug)]
pub struct Kafka {
    nodes: Vec<Node>,
}

/// The single node that all tests of this process share, without credentials; started by the first that asks.
pub fn shared() -> &'static Kafka {
    static SHARED: OnceLock<Kafka> = OnceLock::new();
    SHARED.get_or_init(Kafka::start)
}

impl Kafka {
    /// One node.
    pub fn start() -> Self {
        Self::start_with(&Settings::default())
    }

    /// Three nodes.
    pub fn start_cluster() -> Self {
        Self::start_with(&Settings { three_nodes: true, ..Settings::default() })
    }

    /// Starts all nodes at once and waits until each knows all others.
    pub fn start_with(settings: &Settings) -> Self {
        let count = if settings.three_nodes { NODES_MAX } else { 1 };
        on_free_ports(|numbers: [u16; 3 * NODES_MAX]| {
            let ports: Vec<Ports> = numbers.chunks_exact(3).take(count).map(Ports::of).collect();
            let nodes = (0..count).map(|index| Node::new(index, &ports, settings)).collect();
            let mut kafka = Self { nodes };
            kafka.nodes.iter_mut().for_each(Node::launch);
            kafka.wait_until_whole()?;
            Ok(kafka)
        })
    }

    /// Where clients begin: `127.0.0.1:port` of each node, with commas between.
    pub fn bootstrap(&self) -> String {
        let addresses = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port()));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Where the first node listens for clients.
    pub fn port(&self) -> u16 {
        self.port_of(0)
    }

    /// Where a node listens for clients; the first is 0. In the protocol its id is one more.
    pub fn port_of(&self, node: usize) -> u16 {
        self.nodes[node].port()
    }

    /// The process of a node; none while it is down.
    pub fn pid_of(&self, node: usize) -> Option<u32> {
        self.nodes[node].program().pid()
    }

    /// The folder of a node, with data, configuration and log.
    pub fn folder_of(&self, node: usize) -> &Path {
        self.nodes[node].program().folder()
    }

    /// The end of the log of a node.
    pub fn log_tail_of(&self, node: usize) -> String {
        self.nodes[node].program().log_tail()
    }

    /// What a running node knows of the cluster and of a topic, without making it.
    pub fn metadata(&self, node: usize, topic: &str) -> Result<Metadata, String> {
        self.nodes[node].metadata(topic, false)
    }

    /// Makes a topic by asking for it; whether its partitions have leaders yet, [`Kafka::metadata`] tells.
    pub fn ask_for_topic(&self, topic: &str) -> Result<Metadata, String> {
        let up = self.nodes.iter().find(|node| node.program().pid().is_some());
        up.ok_or("all nodes are down")?.metadata(topic, true)
    }

    /// Ends every node with SIGKILL.
    pub fn kill(&mut self) {
        let up = self.nodes.iter_mut().filter(|node| node.program().pid().is_some());
        up.for_each(|node| node.program_mut().kill());
    }

    /// Starts the nodes that are down on the same ports and the same data, and waits until each knows all others.
    pub fn start_again(&mut self) {
        let down = self.nodes.iter_mut().filter(|node| node.program().pid().is_none());
        down.for_each(Node::launch);
        self.wait_until_whole().unwrap_or_else(|told| panic!("{told}"));
    }

    /// Ends one node with SIGKILL; the others notice some seconds later.
    pub fn kill_node(&mut self, node: usize) {
        self.nodes[node].program_mut().kill();
    }

    /// Starts one node again, on the same port and the same data, and waits until it is back among the others.
    pub fn start_node_again(&mut self, node: usize) {
        self.nodes[node].launch();
        let id = node as i32 + 1;
        let started = self.nodes[node].wait_until(|told| told.brokers.contains(&id));
        started.unwrap_or_else(|told| panic!("{told}"));
    }

    /// Stops one node (SIGSTOP): connections stay, the kernel takes bytes, the node does not answer.
    pub fn freeze_node(&mut self, node: usize) {
        self.nodes[node].program_mut().freeze();
    }

    /// Lets it go on after [`Kafka::freeze_node`].
    pub fn thaw_node(&mut self, node: usize) {
        self.nodes[node].program_mut().thaw();
    }

    fn wait_until_whole(&mut self) -> Result<(), String> {
        let count = self.nodes.len();
        self.nodes.iter_mut().try_for_each(|node| node.wait_until(|told| told.brokers.len() == count))
    }
}
