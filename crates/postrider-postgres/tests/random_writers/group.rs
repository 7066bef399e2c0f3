//! Members that share the subscriptions, of which there are more and fewer.

use std::time::Duration;

use postrider_testkit::Incarnation;
use postrider_testkit::history::Fault;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Scene, open_for};

/// Long enough for a busy machine: who loses shards because its process had no turn repeats events without a
/// fault that this history knows of.
const LEASE: Duration = Duration::from_secs(4);

/// The members that run.
#[derive(Default)]
pub(crate) struct Group {
    members: Vec<Member>,
    pub(crate) killed: usize,
    pub(crate) ended: usize,
}

struct Member {
    life: Incarnation,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Group {
    /// Starts members, or ends some: about half of them are killed.
    pub(crate) async fn resize(&mut self, scene: &Scene, size: usize, rng: &mut fastrand::Rng) {
        while self.members.len() < size {
            self.start(scene).await;
        }
        while self.members.len() > size {
            let member = self.members.swap_remove(rng.usize(0..self.members.len()));
            if rng.bool() { self.kill(scene, member).await } else { self.end(member).await }
        }
    }

    /// Ends all of them in order.
    pub(crate) async fn end_all(&mut self) {
        while let Some(member) = self.members.pop() {
            self.end(member).await;
        }
    }

    async fn start(&mut self, scene: &Scene) {
        let life = scene.receivers.begin_life();
        let relay = scene.receivers.relay_of(life, open_for(&scene.db, LEASE).await);
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { stopped.await.unwrap() };
        let running = tokio::spawn(async move { relay.run(stopped).await.map(drop).unwrap() });
        self.members.push(Member { life, stop, running });
    }

    async fn kill(&mut self, scene: &Scene, member: Member) {
        member.running.abort();
        let ended = member.running.await;
        assert!(ended.unwrap_err().is_cancelled(), "it ran until it was killed");
        scene.receivers.fault_of(Fault::Crash, Some(member.life)).await;
        self.killed += 1;
    }

    async fn end(&mut self, member: Member) {
        member.stop.send(()).unwrap();
        member.running.await.unwrap();
        self.ended += 1;
    }
}
