//! A log whose ring has come round more than once.

use postrider_testkit::postgres::Version;

use crate::stage::{AMPLE, Stage, emit, note, run};

/// The log goes on in the next leaf.
const ROTATE: &str = "select setval('postrider.event_id_seq', ((last_value >> 34) + 1) << 34, true) from postrider.event_id_seq";

/// More ids than one statement looks through.
const LEAP: &str =
    "select setval('postrider.event_id_seq', last_value + 1200000, true) from postrider.event_id_seq";

/// Reads until a subscription from the start has all that there is. Turns that were emptied would have taken
/// 17,000 each.
const STEPS_MAX: usize = 20;

#[tokio::test]
async fn a_new_subscription_passes_over_turns_that_were_emptied() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let (p, late) = (stage.session().await, stage.session().await);
        run(&late, "begin").await;
        for turn in 0..40 {
            emit(&p, "p", "old").await;
            if turn == 5 {
                emit(&late, "late", "late").await;
            }
            stage.run(ROTATE);
        }
        stage.run("delete from postrider.event");
        run(&late, "commit").await;
        emit(&p, "p", "first").await;
        stage.run(LEAP);
        emit(&p, "p", "last").await;
        let mut owner = stage.owner("orders").await;
        let mut notes = Vec::new();
        for _ in 0..STEPS_MAX {
            let chunk = owner.step(AMPLE).await.unwrap();
            notes.extend(chunk.events.iter().map(|event| note(&event.payload)));
            if !chunk.more {
                break;
            }
        }
        assert_eq!(notes, ["late", "first", "last"], "{version:?}");
    }
}
