//! Moving a subscription while transactions are open, or have committed since it last looked.

use postrider_core::{DeliveryState, EventId, Start, Store};
use postrider_postgres::tokio_postgres::Client;
use postrider_testkit::postgres::Version;

use crate::stage::{Owner, Stage, emit, run};

/// A subscription that has read `p 1` to `p 10`, beside a transaction with a smaller id that is still open.
struct Late {
    stage: Stage,
    writer: Client,
    drawn_first: EventId,
    ids: Vec<EventId>,
}

impl Late {
    async fn on(version: Version) -> Self {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let (writer, p) = (stage.session().await, stage.session().await);
        run(&writer, "begin").await;
        let late = EventId(emit(&writer, "late", "late").await);
        let mut ids = Vec::new();
        for n in 1..=10 {
            ids.push(EventId(emit(&p, "p", &format!("p {n}")).await));
        }
        assert_eq!(owner.read().await.len(), 10);
        owner.leave().await;
        Self { stage, writer, drawn_first: late, ids }
    }

    async fn seek(&self, to: Start) {
        self.stage.store.subscription_seek("orders", to, "ann").await.unwrap();
    }

    /// What the next owner reads.
    async fn read(&self) -> Vec<String> {
        let mut owner = Owner::of(&self.stage.store, "orders").await;
        let read = owner.read().await;
        owner.leave().await;
        read
    }

    async fn late_is(&self) -> DeliveryState {
        self.stage.store.event_deliveries(self.drawn_first).await.unwrap()[0].state
    }
}

fn notes(from: usize) -> Vec<String> {
    (from..=10).map(|n| format!("p {n}")).collect()
}

#[tokio::test]
async fn a_seek_back_keeps_an_event_that_committed_late() {
    for version in Version::ALL {
        let scene = Late::on(version).await;
        run(&scene.writer, "commit").await;
        // One after the other, and the last of them forward again: the event is not what they ask to pass over.
        for back in [4, 1, 6] {
            scene.seek(Start::Id(scene.ids[back])).await;
            assert_eq!(scene.late_is().await, DeliveryState::Pending, "{version:?}");
        }
        let mut wanted = notes(7);
        wanted.push("late".to_owned());
        assert_eq!(scene.read().await, wanted, "{version:?}");
        assert_eq!(scene.late_is().await, DeliveryState::Done, "{version:?}");
        assert_eq!(scene.read().await, [""; 0], "{version:?}");
    }
}

#[tokio::test]
async fn a_seek_to_the_end_of_what_was_read_keeps_it_too() {
    for version in Version::ALL {
        let scene = Late::on(version).await;
        run(&scene.writer, "commit").await;
        scene.seek(Start::Id(EventId(scene.ids[9].0 + 1))).await;
        assert_eq!(scene.read().await, ["late"], "{version:?}");
    }
}

#[tokio::test]
async fn a_seek_forward_passes_over_what_is_visible_and_nothing_else() {
    for version in Version::ALL {
        let scene = Late::on(version).await;
        let (other, p) = (scene.stage.session().await, scene.stage.session().await);
        run(&other, "begin").await;
        emit(&other, "other", "open").await;
        let skipped = EventId(emit(&p, "p", "skipped").await);
        emit(&p, "p", "next").await;
        run(&scene.writer, "commit").await;
        scene.seek(Start::Id(EventId(skipped.0 + 1))).await;
        assert_eq!(
            scene.late_is().await,
            DeliveryState::Done,
            "{version:?}: it was visible, and lies before"
        );
        run(&other, "commit").await;
        assert_eq!(scene.read().await, ["next", "open"], "{version:?}");
    }
}
