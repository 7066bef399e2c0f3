//! The network between a sink and its broker fails in every way that it can.

use std::future::pending;
use std::time::Duration;

use postrider_core::{FailureClass, Outcome, Sink};
use postrider_testkit::tcp_proxy::{Counting, Proxy, Side};

use crate::ledger::Ledger;

/// Delivers all the while through `proxy`. The sink must give up soon on a broker that does not answer.
pub(crate) async fn fail_in_every_way<S: Sink>(sink: &S, proxy: &Proxy, ledger: &mut Ledger) {
    let batch = |ledger: &mut Ledger| ledger.emit_turns(10, 3);

    let slow = batch(ledger);
    proxy.slow_down(Duration::from_millis(10));
    ledger.deliver(sink, slow).await;
    proxy.heal();

    // The broker has taken some, and its answer is lost from here or there on.
    for bytes in [0, 40, 400] {
        let answered = batch(ledger);
        proxy.swallow_server_bytes_from(bytes);
        ledger.deliver(sink, answered).await;
    }
    // The connection ends within what the sink has to say.
    for bytes in [1, 600, 2500] {
        let cut = batch(ledger);
        proxy.cut_after(Side::Client, bytes, Counting::FromNow);
        ledger.deliver(sink, cut).await;
    }
    proxy.heal();

    // Half open: the proxy takes bytes, and no broker gets them. They arrive later, or are lost.
    for loses in [false, true] {
        let silent = batch(ledger);
        proxy.black_hole();
        let outcomes = ledger.attempt(sink, &silent).await;
        assert!(outcomes.iter().all(|outcome| *outcome != Outcome::Ack), "{outcomes:?}");
        let Outcome::Retry(failure) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert_eq!(failure.class(), FailureClass::Unavailable, "it costs no attempt: {failure}");
        // The caller gives these up.
        let abandoned = tokio::time::timeout(Duration::from_millis(100), sink.send(silent.clone())).await;
        assert!(abandoned.is_err(), "{abandoned:?}");
        ledger.note_abandoned(&silent);
        if loses {
            proxy.reset_all();
        }
        proxy.heal();
        ledger.deliver(sink, silent).await;
    }

    // Resets while events flow.
    let flowing = ledger.emit_turns(10, 30);
    let mut resets = 0;
    let reset = async {
        while resets < 3 {
            proxy.count_from_now();
            while proxy.passed().client < 1000 {
                tokio::task::yield_now().await;
            }
            proxy.reset_all();
            resets += 1;
        }
        pending::<()>().await;
    };
    // The counting begins before the first event leaves, and is looked at before each answer is.
    tokio::select! {
        biased;
        () = reset => {}
        () = ledger.deliver(sink, flowing) => {}
    }
    assert!(resets > 0, "events flowed");
}
